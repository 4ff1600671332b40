package widgets

import (
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strings"

	"colabrelay/shared/lazy"
)

// Bounds of a text.
const (
	maxText   = 16 << 10 // bytes; of a longer one the end is shown
	maxDepth  = 10       // boxes within boxes
	maxModels = 500      // of one text
	maxHTML   = 64 << 10 // bytes; the markup of a longer one is shown
)

// Text returns what a person would read of a widget: a bar and its numbers, the text of its parts,
// what an Output widget has captured. It is empty for a closed or hidden widget. ok is false if the
// widget shows nothing that can be said in text.
func (m Models) Text(id string) (text string, ok bool) {
	p := printer{models: m, left: maxModels}
	text, ok = p.text(id, 0, false)
	text = strings.TrimRight(text, " \n")
	if over := len(text) - maxText; over > 0 {
		text = fmt.Sprintf("[… %d bytes before this are not shown …]\n", over) + strings.ToValidUTF8(text[over:], "")
	}
	return text, ok
}

// printer makes one text.
type printer struct {
	models Models
	left   int // models that it may still visit
}

// text returns that of a model. beside says that other parts of its row have texts: then they say the
// numbers of a bar.
func (p *printer) text(id string, depth int, beside bool) (text string, ok bool) {
	m := p.models[id]
	if p.left--; m == nil || depth > maxDepth || p.left < 0 {
		return "", false
	}
	if p.isHidden(m) {
		return "", true
	}
	switch kind := strings.TrimSuffix(m.Name, "Model"); kind {
	case "FloatProgress", "IntProgress":
		return m.bar(beside), true
	case "HTML", "HTMLMath", "Label":
		return m.labelled(plainText(m.string("value"))), true
	case "Text", "Textarea", "Combobox", "IntText", "BoundedIntText", "FloatText", "BoundedFloatText", "IntSlider", "FloatSlider",
		"FloatLogSlider", "IntRangeSlider", "FloatRangeSlider", "Checkbox", "ToggleButton", "Valid", "Play", "DatePicker", "ColorPicker":
		return m.labelled(m.value("value")), true
	case "Dropdown", "Select", "RadioButtons", "ToggleButtons", "SelectionSlider":
		var labels []string
		var index int
		_ = json.Unmarshal(m.State["_options_labels"], &labels)
		if json.Unmarshal(m.State["index"], &index) != nil || index < 0 || index >= len(labels) {
			return m.labelled("none"), true
		}
		return m.labelled(labels[index]), true
	case "Button":
		return "[" + m.string("description") + "]", true
	case "Box", "HBox":
		return p.row(m, depth), true
	case "VBox", "GridBox", "Accordion", "Tab", "Stack":
		return p.column(m, depth), true
	case "Output":
		return p.outputs(m, depth), true
	}
	return "", false
}

// isHidden reports whether a model's layout hides it.
func (p *printer) isHidden(m *Model) bool {
	layout := p.models[strings.TrimPrefix(m.string("layout"), "IPY_MODEL_")]
	return layout != nil && (layout.string("visibility") == "hidden" || layout.string("display") == "none")
}

// children returns the ids of a box's parts.
func (m *Model) children() (ids []string) {
	_ = json.Unmarshal(m.State["children"], &ids)
	for i := range ids {
		ids[i] = strings.TrimPrefix(ids[i], "IPY_MODEL_")
	}
	return ids
}

func (p *printer) row(m *Model, depth int) string {
	var parts []string
	children := m.children()
	hasText := slices.ContainsFunc(children, func(id string) bool {
		part := p.models[id]
		return part != nil && (part.Name == "HTMLModel" || part.Name == "LabelModel") && part.string("value") != ""
	})
	for _, id := range children {
		if text, _ := p.text(id, depth+1, hasText); strings.TrimSpace(text) != "" {
			parts = append(parts, strings.TrimSpace(text))
		}
	}
	return strings.Join(parts, " ")
}

func (p *printer) column(m *Model, depth int) string {
	var lines, titles []string
	_ = json.Unmarshal(m.State["titles"], &titles)
	for i, id := range m.children() {
		text, _ := p.text(id, depth+1, false)
		if i < len(titles) && titles[i] != "" {
			lines = append(lines, titles[i]+":")
		}
		if text = strings.TrimRight(text, "\n"); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// outputs returns what an Output widget shows: outputs as nbformat has them.
func (p *printer) outputs(m *Model, depth int) string {
	var all []struct {
		Text          lines                      `json:"text"`
		Data          map[string]json.RawMessage `json:"data"`
		EName, EValue string
		Traceback     []string
	}
	_ = json.Unmarshal(m.State["outputs"], &all)
	var b strings.Builder
	for _, o := range all {
		text := string(o.Text)
		switch {
		case o.Data != nil:
			var plain lines
			_ = json.Unmarshal(o.Data["text/plain"], &plain)
			text = string(plain)
			if shown, ok := p.text(View(o.Data), depth+1, false); ok {
				text = shown
			}
			text += "\n"
		case len(o.Traceback) > 0:
			text = strings.Join(o.Traceback, "\n") + "\n"
		case o.EName != "":
			text = o.EName + ": " + o.EValue + "\n"
		}
		b.WriteString(text)
	}
	return b.String()
}

// lines is a text that is a string or a list of lines, as a notebook has it.
type lines string

// UnmarshalJSON implements json.Unmarshaler.
func (l *lines) UnmarshalJSON(raw []byte) error {
	var all []string
	if json.Unmarshal(raw, &all) == nil {
		*l = lines(strings.Join(all, ""))
		return nil
	}
	return json.Unmarshal(raw, (*string)(l))
}

// cells is how many characters a bar has.
const cells = 10

// bar returns a progress bar; numbers says what it stands for, unless a text beside it does.
func (m *Model) bar(beside bool) string {
	var value, low, high float64
	_ = json.Unmarshal(m.State["value"], &value)
	_ = json.Unmarshal(m.State["min"], &low)
	if json.Unmarshal(m.State["max"], &high) != nil {
		high = 100
	}
	if high <= low {
		return m.labelled("")
	}
	full := min(max((value-low)/(high-low), 0), 1) * cells
	bar := strings.Repeat("█", int(full))
	if part := int((full - float64(int(full))) * 8); part > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[part-1])
	}
	bar = fmt.Sprintf("|%-*s|", cells, bar)
	if !beside {
		bar += fmt.Sprintf(" %g/%g", value, high)
	}
	return m.labelled(bar)
}

// labelled puts the widget's description before a text.
func (m *Model) labelled(text string) string {
	description := strings.TrimRight(plainText(m.string("description")), ": ")
	switch {
	case description == "":
		return text
	case text == "":
		return description
	}
	return description + ": " + text
}

// string returns a trait that is a text; empty if it is none.
func (m *Model) string(trait string) (text string) {
	_ = json.Unmarshal(m.State[trait], &text)
	return text
}

// value returns a trait as text, or as JSON if it is none.
func (m *Model) value(trait string) string {
	if text := m.string(trait); text != "" {
		return text
	}
	return strings.Trim(string(m.State[trait]), `"`)
}

var (
	lineBreak = lazy.Regexp(`(?i)<br\s*/?>|</(?:p|div|tr|li|h[1-6])>`)
	tag       = lazy.Regexp(`<[^<>]*>`)
)

// spaces are those with which HTML keeps columns.
var spaces = strings.NewReplacer("\u00a0", " ", "\u2007", " ")

// plainText returns the text of HTML.
func plainText(text string) string {
	if strings.ContainsAny(text, "<&") && len(text) <= maxHTML {
		text = html.UnescapeString(tag().ReplaceAllString(lineBreak().ReplaceAllString(text, "\n"), ""))
	}
	return spaces.Replace(text)
}
