package notebook

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"

	"colabrelay/relay/output"
)

// layout is the white space of an object or a list, with the commas in it.
type layout struct {
	open, separator, close string
	indent                 string // of the lines of its elements
	style                         // of new values in it; the colon is that of an object
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
	if len(all) == 0 {
		return layout{separator: d.style.comma, style: d.style}
	}
	first, last := all[0], all[len(all)-1]
	l := layout{open: d.between(whole.start+1, first.start), close: d.between(last.value.end, whole.end-1), style: d.style}
	l.newline = newline(l.open)
	switch {
	case len(all) > 1:
		l.separator = d.between(first.value.end, all[1].start)
	case l.newline != "":
		l.separator = "," + l.open
	default:
		l.separator = d.style.comma
	}
	if l.comma = ","; l.newline != "" {
		l.indent = lastLine(l.open)
	} else if strings.HasSuffix(l.separator, " ") {
		l.comma = ", "
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

// objectLayout returns an object's members and its layout.
func (d *Document) objectLayout(object span) ([]element, layout) {
	all, _ := d.members(object) // it was read before
	return all, d.layoutOf(object, all)
}

// model returns the cell nearest to a place for which good holds, or -1.
func (d *Document) model(at int, good func(p *place) bool) int {
	for distance := range d.Len() + 1 {
		for _, i := range [2]int{at - 1 - distance, at + distance} {
			if i >= 0 && i < d.Len() && good(&d.cells[i]) {
				return i
			}
		}
	}
	return -1
}

// orderOf returns the keys of the cell nearest to a place for which good holds.
func (d *Document) orderOf(at int, good func(p *place) bool) []string {
	i := d.model(at, good)
	if i < 0 {
		return nil
	}
	all, _ := d.members(d.cells[i].all)
	return keys(all)
}

func keys(all []element) []string {
	keys := make([]string, len(all))
	for i, m := range all {
		keys[i] = m.key
	}
	return keys
}

// placeFor returns where a new key goes among keys: before the first one that follows it in the
// order of a model, or at the end. Without a model, keys that are sorted stay sorted.
func placeFor(key string, keys, model []string) int {
	at := slices.Index(model, key)
	if at < 0 && slices.IsSorted(keys) {
		at, _ = slices.BinarySearch(keys, key)
		return at
	}
	for i, k := range keys {
		if at >= 0 && slices.Index(model, k) > at {
			return i
		}
	}
	return len(keys)
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

// hasLines reports whether a source is a list with a line in it.
func (d *Document) hasLines(p *place) bool {
	list := d.part(p.source)
	return len(list) > 0 && list[0] == '[' && !isEmpty(list)
}

// ErrHalves: an edit would write U+FFFD where the file has half a surrogate pair, which is shown so.
var ErrHalves = errors.New("the edit is not made, because the file would lose halves of surrogate pairs, which are shown as U+FFFD")

// newSource returns the source of a cell with another text, whose lines begin in lines with this
// indentation. A source that is one string stays one.
func (d *Document) newSource(i int, source, indent string) ([]byte, error) {
	text := d.part(d.cells[i].source)
	switch {
	case len(text) > 0 && text[0] == '"':
		if hasHalves(text) && strings.Contains(source, "\ufffd") {
			return nil, ErrHalves
		}
		return d.style.quote(nil, source), nil
	case !d.hasLines(&d.cells[i]):
		return d.writeLines(i, source, indent), nil
	case source == "":
		return []byte("[]"), nil
	}
	return d.replaceLines(d.cells[i].source, source)
}

// writeLines returns the lines of a text as a list like the one nearest to a cell.
func (d *Document) writeLines(near int, source, indent string) []byte {
	model := d.model(near, d.hasLines)
	if model < 0 {
		b, _ := d.style.write(nil, output.SplitLines(source), indent) // texts can always be written
		return b
	}
	list := d.cells[model].source
	return d.layoutOf(list, slices.Collect(elements(d.text, list))).quoteLines(source)
}

func (l layout) quoteLines(source string) []byte {
	var quoted [][]byte
	for _, line := range output.SplitLines(source) {
		quoted = append(quoted, l.quote(nil, line))
	}
	return l.lay("[]", quoted)
}

// replaceLines returns a list of lines with those of another text, which is not empty. Equal lines at
// its start and its end keep their bytes.
func (d *Document) replaceLines(list span, source string) ([]byte, error) {
	all, before := slices.Collect(elements(d.text, list)), slices.Collect(lines(d.part(list)))
	head, from := sharedStart(before, source)
	tail, to := sharedEnd(before[head:], source[from:])
	old := all[head : len(all)-tail]
	middle := source[from : from+to]
	if len(old) > 0 && strings.Contains(middle, "\ufffd") && hasHalves(d.text[old[0].start:old[len(old)-1].value.end]) {
		return nil, ErrHalves
	}
	l := d.layoutOf(list, all)
	parts := [][]byte{} // with what stands before each
	add := func(gap string, part []byte) { parts = append(parts, append([]byte(gap), part...)) }
	gap := func(k int) string { // before the line k
		switch {
		case len(parts) == 0:
			return l.open
		case k == 0 || k >= len(all):
			return l.separator
		}
		return d.between(all[k-1].value.end, all[k].start)
	}
	for k := range head {
		add(gap(k), d.part(all[k].value))
	}
	for i, line := range output.SplitLines(middle) {
		k := head + i
		if i >= len(old) {
			k = len(all)
		}
		add(gap(k), l.quote(nil, line))
	}
	for k := len(all) - tail; k < len(all); k++ {
		add(gap(k), d.part(all[k].value))
	}
	return slices.Concat([]byte("["), bytes.Join(parts, nil), []byte(l.close+"]")), nil
}

// sharedStart returns how many of the lines a text begins with, and where the rest begins, which is
// where a line begins or at the end.
func sharedStart(lines []string, text string) (n, at int) {
	passed := 0
	for i, line := range lines {
		if !strings.HasPrefix(text[passed:], line) {
			break
		}
		if passed += len(line); passed == len(text) || strings.HasSuffix(text[:passed], "\n") {
			n, at = i+1, passed
		}
	}
	return n, at
}

// sharedEnd returns how many of the lines a text ends with, and where they begin.
func sharedEnd(lines []string, text string) (n, at int) {
	at = len(text)
	left := at
	for i, line := range slices.Backward(lines) {
		if !strings.HasSuffix(text[:left], line) {
			break
		}
		if left -= len(line); left == 0 || strings.HasSuffix(text[:left], "\n") {
			n, at = len(lines)-i, left
		}
	}
	return n, at
}

// compose returns the text of a new cell for a place: with the keys of the nearest cell, in its
// order and with its white space. There is one at least.
func (d *Document) compose(at int, c NewCell) ([]byte, error) {
	model := d.model(at, func(p *place) bool { return p.cellType == c.Type })
	if model < 0 {
		model = d.model(at, func(*place) bool { return true })
	}
	all, l := d.objectLayout(d.cells[model].all)
	cell := d.object(at, c)
	var members [][]byte
	for _, key := range inOrder(slices.Sorted(maps.Keys(cell)), keys(all)) {
		value, err := l.write(nil, cell[key], l.indent)
		if err != nil {
			return nil, err
		}
		if key == "source" && c.Source != "" {
			value = d.writeLines(at, c.Source, l.indent)
		}
		members = append(members, l.member(key, value))
	}
	return l.lay("{}", members), nil
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

// member returns a member of an object.
func (l layout) member(key string, value []byte) []byte {
	return append(append(l.quote(nil, key), l.colon...), value...)
}

// inOrder returns keys in the order of a model.
func inOrder(all, model []string) (keys []string) {
	for _, key := range slices.Concat(model, all) {
		switch {
		case slices.Contains(keys, key) || !slices.Contains(all, key):
		case slices.Contains(model, key):
			keys = append(keys, key)
		default:
			keys = slices.Insert(keys, placeFor(key, keys, nil), key)
		}
	}
	return keys
}

// isColab reports whether a cell next to a place has an id as Colab writes it.
func (d *Document) isColab(at int) bool {
	return slices.ContainsFunc(d.cells[max(0, at-1):min(at+1, d.Len())], func(p place) bool { return p.colab != "" })
}
