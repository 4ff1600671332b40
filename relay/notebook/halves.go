package notebook

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

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
