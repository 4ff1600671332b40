package notebook

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/output"
)

// layout is the white space of an object or a list, with the commas in it.
type layout struct {
	open, separator, close string
	colon                  string // of an object
	indent                 string // of the lines of its elements
	style                         // of new values in it
}

// members returns the members of an object that has been indexed.
func (d *Document) members(object span) (all []member) {
	s := &scanner{text: d.text[:object.end], at: object.start}
	_ = s.object(func(m *member) (err error) {
		m.value, err = s.value()
		all = append(all, *m)
		return err
	})
	return all
}

// elements returns the elements of a list that has been indexed.
func (d *Document) elements(list span) (all []span) {
	s := &scanner{text: d.text[:list.end], at: list.start}
	_ = s.array(func() error {
		at, err := s.value()
		all = append(all, at)
		return err
	})
	return all
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

// layoutOf returns the layout of the elements between two delimiters, of which there is one at
// least.
func (d *Document) layoutOf(whole span, elements []span) layout {
	l := layout{open: string(d.text[whole.start+1 : elements[0].start]), style: d.style()}
	l.close = string(d.text[elements[len(elements)-1].end : whole.end-1])
	l.newline = newline(l.open)
	switch {
	case len(elements) > 1:
		l.separator = string(d.text[elements[0].end:elements[1].start])
	case l.newline != "":
		l.separator = "," + l.open
	default:
		l.separator = d.style().comma
	}
	if l.newline == "" {
		l.comma = ", "
		if !strings.HasSuffix(l.separator, " ") {
			l.comma = ","
		}
		return l
	}
	l.comma = ","
	l.indent = l.open[strings.LastIndexAny(l.open, "\r\n")+1:]
	return l
}

// objectLayout returns the layout of an object with these members, of which there is one at
// least.
func (d *Document) objectLayout(object span, members []member) layout {
	places := make([]span, len(members))
	for i, m := range members {
		places[i] = span{m.name.start, m.value.end}
	}
	l := d.layoutOf(object, places)
	l.colon = string(d.text[members[0].name.end:members[0].value.start])
	l.style.colon = l.colon
	return l
}

// style returns how the file is written, as its first lines show.
func (d *Document) style() style {
	open := d.text[d.top.start+1:]
	s := scanner{text: open}
	s.next()
	space := string(open[:s.at])
	st := style{newline: newline(space), comma: ",", colon: ":", ascii: d.escaped && !d.raw}
	if st.newline != "" {
		st.unit = space[strings.LastIndexAny(space, "\r\n")+1:]
	} else if d.gap.len() != 1 { // after the first value
		st.comma = ", "
	}
	_ = s.string()
	if s.next(); bytes.HasPrefix(open[s.at:], []byte(": ")) {
		st.colon = ": "
	}
	return st
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

// orderWith returns the keys of the cell nearest to a place that has a key: id or outputs.
func (d *Document) orderWith(key string, at int) (order []string) {
	i := d.model(at, func(p *place) bool { return key == "id" && p.id.len() > 0 || key == "outputs" && p.outputs.len() > 0 })
	if i < 0 {
		return nil
	}
	for _, m := range d.members(d.cells[i].all) {
		order = append(order, m.key)
	}
	return order
}

// sourceLayout returns the layout of the list of lines nearest to a place, if there is one with
// a line in it.
func (d *Document) sourceLayout(at int) (layout, bool) {
	i := d.model(at, func(p *place) bool {
		list := d.part(p.source)
		return len(list) > 0 && list[0] == '[' && !isEmpty(list)
	})
	if i < 0 {
		return layout{}, false
	}
	list := d.cells[i].source
	return d.layoutOf(list, d.elements(list)), true
}

// lay appends encoded elements between two delimiters.
func (l layout) lay(b []byte, delimiters string, elements [][]byte) []byte {
	if len(elements) == 0 {
		return append(b, delimiters...)
	}
	b = append(append(b, delimiters[0]), l.open...)
	for i, element := range elements {
		if i > 0 {
			b = append(b, l.separator...)
		}
		b = append(b, element...)
	}
	return append(append(b, l.close...), delimiters[1])
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

// newSource returns the source of a cell with another text, whose lines begin in lines with this
// indentation. A source that is one string stays one.
// Halves of surrogate pairs in what stays are kept.
func (d *Document) newSource(i int, source, indent string) ([]byte, error) {
	old := d.cells[i].source
	text := d.part(old)
	kept, err := d.keep(i, source)
	if err != nil {
		return nil, err
	}
	if len(text) > 0 && text[0] == '"' {
		return d.style().quoteKept(nil, kept), nil
	}
	if len(text) == 0 || text[0] != '[' || isEmpty(text) {
		return d.writeLines(i, source, indent), nil
	}
	if source == "" {
		return []byte("[]"), nil
	}
	return d.replaceLines(old, source, kept), nil
}

// writeLines returns the lines of a text as a list like the one nearest to a cell.
func (d *Document) writeLines(near int, source, indent string) []byte {
	l, ok := d.sourceLayout(near)
	if !ok {
		st := d.style()
		b, _ := st.write(nil, output.SplitLines(source), indent) // texts can always be written
		return b
	}
	return l.lay(nil, "[]", l.quoteAll(output.SplitLines(source)))
}

func (st style) quoteAll(texts []string) [][]byte {
	quoted := make([][]byte, len(texts))
	for i, text := range texts {
		quoted[i] = st.quote(nil, text)
	}
	return quoted
}

// replaceLines returns a list of lines with those of another text. Equal lines at its start and
// its end keep their bytes, and so does the white space between lines. kept is the text with halves
// of surrogate pairs.
func (d *Document) replaceLines(list span, source, kept string) []byte {
	places, before := d.elements(list), lines(d.part(list))
	head, at := sharedStart(before, source)
	tail, end := sharedEnd(before[head:], source[at:])
	middle := output.SplitLines(source[at : at+end])
	l := d.layoutOf(list, places)
	old := len(places) - tail         // the first line of the tail
	separator := func(k int) string { // as it was before the line k
		if k == 0 {
			return l.separator
		}
		return string(d.text[places[k-1].end:places[k].start])
	}
	from, to := places[0].start, places[len(places)-1].end
	if head > 0 {
		from = places[head-1].end
	}
	b := slices.Clone(d.text[list.start:from])
	for i, line := range middle {
		switch k := head + i; {
		case k == 0:
		case k < old:
			b = append(b, separator(k)...)
		default:
			b = append(b, l.separator...)
		}
		b = l.quoteKept(b, kept[at:at+len(line)])
		at += len(line)
	}
	if tail > 0 {
		to = places[old].start
		if head+len(middle) > 0 {
			b = append(b, separator(old)...)
		}
	}
	return append(b, d.text[to:list.end]...)
}

// sharedStart returns how many of the lines a text begins with, and where the rest begins: with
// a line, or at the end.
func sharedStart(lines []string, text string) (n, at int) {
	for n < len(lines) && strings.HasPrefix(text[at:], lines[n]) {
		at += len(lines[n])
		n++
	}
	for n > 0 && at < len(text) && !isLineStart(text, at) {
		n--
		at -= len(lines[n])
	}
	return n, at
}

// sharedEnd returns how many of the lines a text ends with, and where they begin.
func sharedEnd(lines []string, text string) (n, at int) {
	last := func() string { return lines[len(lines)-1-n] }
	for at = len(text); n < len(lines) && strings.HasSuffix(text[:at], last()); n++ {
		at -= len(last())
	}
	for n > 0 && !isLineStart(text, at) {
		n--
		at += len(last())
	}
	return n, at
}

// isLineStart reports whether Python's splitlines begins a line at a place in a text.
func isLineStart(text string, at int) bool {
	if at == 0 || at == len(text) {
		return at == 0
	}
	last, _ := utf8.DecodeLastRuneInString(text[:at])
	return strings.ContainsRune(output.LineBreaks, last) && !(last == '\r' && text[at] == '\n')
}

// JSON can name half a surrogate pair, "\ud83d", which no text in UTF-8 has. A source is shown with
// U+FFFD in its place. An edit keeps it: a kept text has the three bytes that UTF-8 would give the
// half, as many as U+FFFD has, so that places in both texts are the same.

// ErrHalves: an edit would write U+FFFD where the file has half a surrogate pair.
var ErrHalves = errors.New("the edit is not made, because the file would lose halves of surrogate pairs, which are shown as U+FFFD")

// halfAt reports whether half a surrogate pair is at a place in a kept text.
func halfAt(kept string, at int) bool {
	return kept[at] == 0xed && at+2 < len(kept) && kept[at+1] >= 0xa0
}

func hasHalf(kept string) bool {
	for at := range len(kept) {
		if halfAt(kept, at) {
			return true
		}
	}
	return false
}

// hasHalves reports whether a cell's source has halves of surrogate pairs.
func (d *Document) hasHalves(i int) bool {
	return bytes.Contains(d.part(d.cells[i].source), []byte(`\u`)) && hasHalf(d.keptSource(i))
}

// keptSource returns a cell's source with halves of surrogate pairs.
func (d *Document) keptSource(i int) string {
	return strings.Join(linesBy(d.part(d.cells[i].source), decodeKept), "")
}

// keep returns the new source of a cell with the halves of surrogate pairs of its old one, in what
// both begin and end with. It fails if the rest would lose some unnoticed.
func (d *Document) keep(i int, source string) (string, error) {
	if !d.hasHalves(i) {
		return source, nil
	}
	old, kept := d.source(i), d.keptSource(i)
	head := 0
	for head < min(len(old), len(source)) && old[head] == source[head] {
		head++
	}
	for head > 0 && (head < len(old) && !utf8.RuneStart(old[head]) || head < len(source) && !utf8.RuneStart(source[head])) {
		head--
	}
	tail := 0
	for tail < min(len(old), len(source))-head && old[len(old)-1-tail] == source[len(source)-1-tail] {
		tail++
	}
	for tail > 0 && !utf8.RuneStart(old[len(old)-tail]) {
		tail--
	}
	middle := source[head : len(source)-tail]
	if hasHalf(kept[head:len(kept)-tail]) && strings.ContainsRune(middle, utf8.RuneError) {
		return "", ErrHalves
	}
	return kept[:head] + middle + kept[len(kept)-tail:], nil
}

// quoteKept is quote for a text with halves of surrogate pairs.
func (st style) quoteKept(b []byte, kept string) []byte {
	b = append(b, '"')
	from := 0
	for at := 0; at < len(kept); at++ {
		if halfAt(kept, at) {
			half := rune(kept[at]&0xf)<<12 | rune(kept[at+1]&0x3f)<<6 | rune(kept[at+2]&0x3f)
			b = fmt.Appendf(st.escape(b, kept[from:at]), `\u%04x`, half)
			at += 2
			from = at + 1
		}
	}
	return append(st.escape(b, kept[from:]), '"')
}
