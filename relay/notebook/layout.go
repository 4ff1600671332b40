package notebook

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"colabrelay/relay/output"
)

// layout is the white space of an object or a list, with the commas in it.
type layout struct {
	open, separator, close string
	colon                  string // of an object, with the white space around it
	indent                 string // of the lines of its elements
}

// newline returns the line break in white space, "" if there is none.
func newline(space string) string {
	for _, end := range []string{"\r\n", "\n", "\r"} {
		if strings.Contains(space, end) {
			return end
		}
	}
	return ""
}

// lastLine returns what follows the last line break in white space.
func lastLine(space string) string { return space[strings.LastIndexAny(space, "\r\n")+1:] }

// between returns the text from one place to another.
func (d *Document) between(from, to int) string { return string(d.text[from:to]) }

// layoutOf returns the layout of a list or an object with these elements; without any, the file's.
func (d *Document) layoutOf(whole span, all []element) layout {
	l := layout{separator: d.style.comma, colon: d.style.colon}
	if len(all) == 0 {
		return l
	}
	first, last := all[0], all[len(all)-1]
	l.open, l.close = d.between(whole.start+1, first.start), d.between(last.value.end, whole.end-1)
	if newline(l.open) != "" {
		l.separator, l.indent = ","+l.open, lastLine(l.open)
	}
	if len(all) > 1 {
		l.separator = d.between(first.value.end, all[1].start)
	}
	if first.start < first.value.start {
		l.colon = d.between(stringEnd(d.text, first.start), first.value.start)
	}
	return l
}

// styleOf returns how the file is written, as its first two members show.
func (d *Document) styleOf(all []element) style {
	st := style{comma: ",", colon: ":", ascii: isEscaped(d.text)}
	if len(all) == 0 {
		return st
	}
	first := all[0]
	open := d.between(d.top.start+1, first.start)
	if st.newline = newline(open); st.newline != "" {
		st.unit = lastLine(open)
	} else if len(all) == 1 || all[1].start-first.value.end != len(",") {
		st.comma = ", "
	}
	if strings.HasSuffix(d.between(first.start, first.value.start), ": ") {
		st.colon = ": "
	}
	return st
}

// indentOf returns the indentation of an object's members.
func (d *Document) indentOf(object span) string {
	all, _ := d.members(object) // it was read before
	return d.layoutOf(object, all).indent
}

// placeFor returns where a new key goes among members: where the order has it if they are sorted, as
// nbformat writes them, else at the end.
func placeFor(key string, all []element) int {
	byKey := func(e element, key string) int { return strings.Compare(e.key, key) }
	if !slices.IsSortedFunc(all, func(a, b element) int { return byKey(a, b.key) }) {
		return len(all)
	}
	at, _ := slices.BinarySearchFunc(all, key, byKey)
	return at
}

// lay returns encoded elements between two delimiters.
func (l layout) lay(delimiters string, elements [][]byte) []byte {
	if len(elements) == 0 {
		return []byte(delimiters)
	}
	b := append([]byte{delimiters[0]}, l.open...)
	b = append(b, bytes.Join(elements, []byte(l.separator))...)
	return append(append(b, l.close...), delimiters[1])
}

// isEmpty reports whether a list has no elements.
func isEmpty(list []byte) bool { return list[skip(list, 1)] == ']' }

// ErrHalves: an edit would write U+FFFD where the file has half a surrogate pair, which is shown so.
var ErrHalves = errors.New("the edit is not made, because the file would lose halves of surrogate pairs, which are shown as U+FFFD")

// newSource returns the source of a cell with another text, whose lines have this indentation. A
// source that is one string stays one.
func (d *Document) newSource(i int, source, indent string) ([]byte, error) {
	list := d.cells[i].source
	all := slices.Collect(elements(d.text, list))
	switch text := d.part(list); {
	case len(text) > 0 && text[0] == '"':
		if hasHalves(text) && strings.Contains(source, "\ufffd") {
			return nil, ErrHalves
		}
		return d.style.quote(nil, source), nil
	case len(all) == 0:
		return d.style.write(nil, output.SplitLines(source), indent)
	}
	return d.replaceText(list, all, source)
}

// replaceText returns a list of strings with another text. Whole lines that are the same at its start
// and its end keep their bytes, and what stands between them, also where strings are no lines.
func (d *Document) replaceText(list span, all []element, text string) ([]byte, error) {
	head, from, at := 0, 0, 0
	for k := 0; k < len(all); k++ {
		part := decode(d.part(all[k].value))
		if !strings.HasPrefix(text[at:], part) {
			break
		}
		if at += len(part); isLineEnd(text, at) {
			head, from = k+1, at
		}
	}
	tail, to := len(all), len(text)
	for k, at := len(all)-1, len(text); k >= head; k-- {
		part := decode(d.part(all[k].value))
		if !strings.HasSuffix(text[from:at], part) {
			break
		}
		if at -= len(part); at == from || isLineEnd(text, at) {
			tail, to = k, at
		}
	}
	old, middle := all[head:tail], output.SplitLines(text[from:to])
	if len(old) > 0 && hasHalves(d.text[old[0].start:old[len(old)-1].value.end]) && strings.Contains(strings.Join(middle, ""), "\ufffd") {
		return nil, ErrHalves
	}
	var parts [][]byte
	if head > 0 {
		parts = append(parts, d.text[all[0].start:all[head-1].value.end])
	}
	for _, line := range middle {
		parts = append(parts, d.style.quote(nil, line))
	}
	if tail < len(all) {
		parts = append(parts, d.text[all[tail].start:all[len(all)-1].value.end])
	}
	return d.layoutOf(list, all).lay("[]", parts), nil
}

// isLineEnd reports whether a line ends before a place in a text.
func isLineEnd(text string, at int) bool {
	return at == len(text) || output.EndsLine(text[:at])
}

// object is a new cell for a place.
func (d *Document) object(at int, c NewCell) map[string]any {
	metadata := map[string]any{}
	if len(c.Tags) > 0 {
		metadata["tags"] = c.Tags
	}
	if d.isColab(at) {
		metadata["id"] = newColabID(d.isTaken)
	}
	cell := map[string]any{"cell_type": string(c.Type), "metadata": metadata, "source": output.SplitLines(c.Source)}
	if c.Type == Code {
		cell["execution_count"], cell["outputs"] = nil, []any{}
	}
	if d.minor >= 5 {
		cell["id"] = newID(d.isTaken)
	}
	return cell
}

// isColab reports whether a cell next to a place has an id as Colab writes it.
func (d *Document) isColab(at int) bool {
	return slices.ContainsFunc(d.cells[max(0, at-1):min(at+1, d.Len())], func(p place) bool { return p.colab != "" })
}
