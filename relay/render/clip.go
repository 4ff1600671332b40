package render

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Clip shortens s to at most max runes, which must be at least 100. It keeps the head and
// the tail with a marker line between them, and cuts at line breaks if there is one near.
// It reports whether it shortened s.
func Clip(s string, max int) (string, bool) {
	if len(s) <= max || utf8.RuneCountInString(s) <= max {
		return s, false
	}
	const marker = 60 // runes reserved for the marker line
	runes := []rune(s)
	room := max - marker
	head := headLines(string(runes[:room*2/3]))
	tail := tailLines(string(runes[len(runes)-room/3:]))
	left, over := len(runes)-utf8.RuneCountInString(head)-utf8.RuneCountInString(tail), ""
	if strings.Contains(s, lacksMiddle) { // a part of s stands for more
		over = "over "
	}
	return join(head, fmt.Sprintf("[… %s%d characters omitted …]", over, left), tail), true
}

// lacksMiddle stands in a text for what is not there.
const lacksMiddle = "\n[… the middle of this text is only in the saved output …]\n"

// headLines drops an incomplete last line, unless it is most of the text.
func headLines(s string) string {
	if i := strings.LastIndexByte(s, '\n'); i > len(s)/2 {
		return s[:i+1]
	}
	return s
}

// tailLines drops an incomplete first line, unless it is most of the text.
func tailLines(s string) string {
	if i := strings.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
		return s[i+1:]
	}
	return s
}

// join puts marker on a separate line between head and tail.
func join(head, marker, tail string) string {
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return head + marker + "\n" + tail
}

// tail keeps the last part of a text of any length.
type tail struct {
	max     int // about how many runes are kept
	buf     []byte
	dropped int64 // runes
}

func (t *tail) write(s string) {
	t.buf = append(t.buf, s...)
	if len(t.buf) > 8*t.max {
		t.shrink()
	}
}

// shrink cuts the buffer to max runes.
func (t *tail) shrink() {
	over := utf8.RuneCount(t.buf) - t.max
	if over <= 0 {
		return
	}
	t.dropped += int64(over)
	rest := t.buf
	for range over {
		_, n := utf8.DecodeRune(rest)
		rest = rest[n:]
	}
	t.buf = append(t.buf[:0], rest...)
}
