package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/shared/widgets"
)

// Bounds of one output that is decoded: what is longer is only named.
const (
	maxOutputText = 4 << 20 // bytes of JSON
	maxPicture    = 16 << 20
)

// outputBounds bounds what is shown of a cell's outputs.
type outputBounds struct {
	outputs  int // the first ones
	each     int // characters of one
	all      int // characters of all together
	pictures int // shown, the first ones
	largest  int // bytes of a picture that is shown
}

var (
	previewOutputs = outputBounds{outputs: 10, each: 500, all: 3_000}
	wholeOutputs   = outputBounds{outputs: 60, each: 12_000, all: 12_000, pictures: render.MaxPictures}
)

// CellOutput is one output of a cell as get_cells shows it.
type CellOutput struct {
	Type      string   `json:"output_type"`
	Name      string   `json:"name,omitempty"` // stdout or stderr
	Text      string   `json:"text,omitempty"` // shortened
	MIMETypes []string `json:"mime_types,omitempty"`
	Picture   string   `json:"picture,omitempty"` // type and size, and whether it is shown
}

// write adds the output as a block, under the cell that it belongs to.
func (o *CellOutput) write(b *words, cell string) {
	what := "output of " + cell + ": " + inline(cmp.Or(o.Name, o.Type))
	if o.Picture != "" {
		what += ", " + o.Picture
	} else if o.Text == "" && len(o.MIMETypes) > 0 {
		what += ", " + inlineList(o.MIMETypes)
	}
	b.head(what, o.Text)
}

// shownOutputs is what is shown of a cell's outputs.
type shownOutputs struct {
	outputs  []CellOutput
	pictures []render.Picture
	omitted  string // what is not shown
}

// outputReader turns saved outputs into shownOutputs. It decodes no more of them than it shows:
// a page of cells may have many megabytes of pictures.
type outputReader struct {
	ctx    context.Context
	doc    *notebook.Document // has the states of widgets
	bounds outputBounds
	left   int // characters
	shortened,
	further int
	shownOutputs
}

// readOutputs reads the JSON list of a cell's outputs.
func readOutputs(ctx context.Context, doc *notebook.Document, list json.RawMessage, bounds outputBounds) shownOutputs {
	r := outputReader{ctx: ctx, doc: doc, bounds: bounds, left: bounds.all}
	eachItem(list, func(output []byte) {
		if len(r.outputs) == bounds.outputs {
			r.further++
			return
		}
		r.outputs = append(r.outputs, r.read(output))
	})
	var omitted []string
	if r.shortened > 0 {
		omitted = append(omitted, "parts of "+plain.Count(r.shortened, "output"))
	}
	if r.further > 0 {
		omitted = append(omitted, plain.Count(r.further, "further output"))
	}
	r.omitted = strings.Join(omitted, ", ")
	return r.shownOutputs
}

// read reads one output.
func (r *outputReader) read(output []byte) CellOutput {
	var o CellOutput
	parts := map[string][]byte{}
	eachMember(output, func(key string, value []byte) {
		switch key {
		case "output_type":
			o.Type = plain.Clip(shortString(value), 40)
		case "name":
			o.Name = plain.Clip(shortString(value), 40)
		case "text", "data", "ename", "evalue", "traceback":
			parts[key] = value
		}
	})
	switch {
	case parts["data"] != nil:
		r.bundle(&o, parts["data"])
	case parts["ename"] != nil:
		o.Text = r.clip(raised(parts))
	default:
		o.Text = r.clip(textOf(parts["text"]))
	}
	return o
}

// bundle reads a MIME bundle.
func (r *outputReader) bundle(o *CellOutput, data []byte) {
	payloads := map[string][]byte{}
	eachMember(data, func(mime string, payload []byte) {
		if len(payloads) < 20 {
			payloads[plain.Clip(mime, 100)] = payload
		}
	})
	o.MIMETypes = slices.Sorted(maps.Keys(payloads))
	for _, mime := range o.MIMETypes {
		if strings.HasPrefix(mime, "image/") && o.Picture == "" {
			o.Picture = r.picture(mime, payloads[mime])
		}
	}
	if text, ok := r.doc.WidgetText(payloads[widgets.ViewMIME]); ok {
		o.Text = r.clip(text)
		return
	}
	if text := payloads["text/plain"]; text != nil {
		o.Text = r.clip(textOf(text))
		return
	}
	for _, mime := range o.MIMETypes {
		if strings.HasPrefix(mime, "text/") {
			o.Text = r.clip(textOf(payloads[mime]))
			return
		}
	}
}

// picture adds a picture if the bounds allow one more, and names it.
func (r *outputReader) picture(mime string, payload []byte) string {
	name := fmt.Sprintf("%s of %s", inline(mime), progress.Bytes(int64(len(payload))*3/4))
	if pixels := render.Pixels(output.NewInline(mime, payload)); pixels != "" {
		name += fmt.Sprintf(", %s pixels", pixels)
	}
	switch {
	case r.bounds.pictures == 0:
		return name
	case mime != "image/png" && mime != "image/jpeg":
		return name + ", not shown: only PNG and JPEG are"
	case len(payload) > maxPicture:
		return name + ", not shown: it is too large"
	case len(r.pictures) == r.bounds.pictures:
		return name + ", not shown: earlier ones are"
	}
	shown, err := render.Shrink(r.ctx, output.NewInline(mime, payload))
	if err != nil {
		return fmt.Sprintf("%s, not shown: %v", name, err)
	}
	if len(shown.Data) > r.bounds.largest {
		return name + ", not shown: it is in the notebook"
	}
	r.pictures = append(r.pictures, shown)
	return fmt.Sprintf("%s, shown as picture %d", name, len(r.pictures))
}

// clip shortens a text to what the bounds still allow.
func (r *outputReader) clip(s string) string {
	short, cut := render.Clip(render.Plain(s), max(100, min(r.bounds.each, r.left)))
	if cut {
		r.shortened++
	}
	r.left -= utf8.RuneCountInString(short)
	return plain.Text(short)
}

// raised is the text of an exception: its traceback, or its name and message.
func raised(parts map[string][]byte) string {
	var lines []string
	if len(parts["traceback"]) <= maxOutputText && json.Unmarshal(parts["traceback"], &lines) == nil && len(lines) > 0 {
		return strings.Join(lines, "\n")
	}
	return strings.TrimSuffix(textOf(parts["ename"])+": "+textOf(parts["evalue"]), ": ")
}

// textOf returns a text that is one string or a list of lines; of other JSON, nothing.
func textOf(raw []byte) string {
	if len(raw) > maxOutputText {
		return fmt.Sprintf("[%s of text, too long to be shown here]", progress.Bytes(int64(len(raw))))
	}
	var (
		text  string
		lines []string
	)
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return text
	case json.Unmarshal(raw, &lines) == nil:
		return strings.Join(lines, "")
	}
	return ""
}

// shortString returns a string of a few bytes.
func shortString(raw []byte) (s string) {
	if len(raw) < 1_000 {
		_ = json.Unmarshal(raw, &s)
	}
	return s
}
