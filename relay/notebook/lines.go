package notebook

import (
	"slices"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/output"
)

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
