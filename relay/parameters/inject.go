package parameters

import (
	"fmt"
	"slices"
	"strings"

	"colabrelay/relay/notebook"
	"colabrelay/shared/lazy"
)

// Tags of papermill's.
const (
	defaultsTag = "parameters"
	injectedTag = "injected-parameters"
)

// Inject writes the cell that assigns the parameters: it replaces an earlier injected cell,
// otherwise it follows the cell tagged "parameters", otherwise it goes first. Parameters that
// #@param lines have are not in it: Fill sets them. It returns warnings for the person or model
// that gave the parameters. A second call with the same values changes nothing.
func (v *Values) Inject(d *notebook.Document) (warnings []string, err error) {
	names := v.withoutForms(d)
	if len(names) == 0 {
		return nil, nil
	}
	source, defaults := v.cell(names), tagged(d, defaultsTag)
	if defaults >= 0 {
		warnings = unknown(names, d.Cell(defaults).Source)
	}
	if at := tagged(d, injectedTag); at >= 0 {
		if cell := d.Cell(at); cell.Source == source && cell.Type == notebook.Code {
			return warnings, nil
		}
		return warnings, d.SetSource(at, source, notebook.Code)
	}
	if defaults < 0 {
		warnings = []string{`no cell has the tag "parameters", so the parameters are assigned in a new first cell: a later cell that assigns the same names replaces the values`}
	}
	_, err = d.Insert(defaults+1, notebook.NewCell{Type: notebook.Code, Source: source, Tags: []string{injectedTag}})
	return warnings, err
}

// withoutForms returns the names that no #@param line of the notebook has.
func (v *Values) withoutForms(d *notebook.Document) (names []string) {
	forms := map[string]bool{}
	for i := range d.Len() {
		cell := d.Cell(i)
		if cell.Type != notebook.Code || !strings.Contains(cell.Source, "@param") {
			continue
		}
		for line := range strings.Lines(cell.Source) {
			if f, ok := formOf(line); ok {
				forms[f.name] = true
			}
		}
	}
	for _, name := range v.names {
		if !forms[name] {
			names = append(names, name)
		}
	}
	return names
}

// tagged returns the first cell with a tag, or -1.
func tagged(d *notebook.Document, tag string) int {
	for i := range d.Len() {
		if slices.Contains(d.Cell(i).Tags, tag) {
			return i
		}
	}
	return -1
}

// assignment matches a line that assigns one or more names, up to the equals sign.
var assignment = lazy.Regexp(`^[ \t]*([\pL_][\pL\pN_, \t]*?)[ \t]*(?::[^=#]*)?=(?:[^=]|$)`)

// unknown warns of the names that the cell of the defaults does not assign.
func unknown(names []string, defaults string) []string {
	assigned := map[string]bool{}
	for line := range strings.Lines(defaults) {
		if m := assignment().FindStringSubmatch(line); m != nil {
			for name := range strings.SplitSeq(m[1], ",") {
				assigned[strings.TrimSpace(name)] = true
			}
		}
	}
	var missing []string
	for _, name := range names {
		if !assigned[name] {
			missing = append(missing, name)
		}
	}
	if missing == nil {
		return nil
	}
	return []string{fmt.Sprintf(`the cell tagged "parameters" does not assign %s: check the spelling; the notebook may not use what you set`, strings.Join(missing, ", "))}
}

// formStart matches a line that assigns a name, up to the value. Colab shows a form for such a
// line if it ends in a comment that begins with #@param.
var (
	formStart = lazy.Regexp(`^[ \t]*([\pL_][\pL\pN_]*)[ \t]*(?::[^=#]*)?=[ \t]*`)
	formMark  = lazy.Regexp(`^#[ \t]*@param\b`)
)

// form is the value on a #@param line: its name, and where the line has the value.
type form struct {
	name       string
	begin, end int
}

// formOf returns the form of a line, if it has one.
func formOf(line string) (form, bool) {
	start := formStart().FindStringSubmatchIndex(line)
	if start == nil || strings.HasPrefix(line[start[1]:], "=") { // a comparison
		return form{}, false
	}
	comment := commentOf(line, start[1])
	if comment < 0 || !formMark().MatchString(line[comment:]) {
		return form{}, false
	}
	value := strings.TrimRight(line[start[1]:comment], " \t")
	return form{line[start[2]:start[3]], start[1], start[1] + len(value)}, true
}

// commentOf returns where the comment of a line of Python begins at or after a place that is in
// no string, or -1.
func commentOf(line string, from int) int {
	quote := byte(0)
	for i := from; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			return i
		}
	}
	return -1
}

// Fill returns the source of a code cell with the parameters as values of its #@param lines. The
// rest of each line stays.
func (v *Values) Fill(source string) string {
	if len(v.names) == 0 || !strings.Contains(source, "@param") {
		return source
	}
	var b strings.Builder
	for line := range strings.Lines(source) {
		f, ok := formOf(line)
		if expression, given := v.expressions[f.name]; ok && given {
			line = line[:f.begin] + expression + line[f.end:]
		}
		b.WriteString(line)
	}
	return b.String()
}
