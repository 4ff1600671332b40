package render

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// stream is stdout or stderr. It has the folded head and tail in bounded memory.
type stream struct {
	folder folder
	limit  int // runes of the tail that may be shown

	head      []byte
	headRunes int
	frozen    bool   // the head is complete, further text goes to the tail
	skipped   bool   // text after the head was skipped
	atFreeze  string // rows that could still change at the freeze and belong to the head
	tail      tail
}

// start makes s an empty stream.
func (s *stream) start(limit int) {
	*s = stream{limit: limit, tail: tail{max: limit}, folder: folder{emit: s.line}}
}

func (s *stream) line(text string) {
	if s.frozen {
		s.tail.write(text)
		return
	}
	s.head = append(s.head, text...)
	s.headRunes += utf8.RuneCountInString(text)
}

// skip drops the text after the head. The text written next does not follow the head.
func (s *stream) skip() {
	s.skipped, s.tail, s.folder = true, tail{max: s.limit}, folder{emit: s.line}
}

func (s *stream) shown() int { return s.headRunes + utf8.RuneCountInString(s.folder.pending()) }

// freeze completes the head with at most most runes. It reports whether text did not fit,
// which then begins the tail.
func (s *stream) freeze(most int) (cut bool) {
	pending := s.folder.pending()
	// The tail repeats these rows, which does not count as an omission.
	s.tail.max = s.limit + utf8.RuneCountInString(pending)
	s.frozen = true
	if s.headRunes > most {
		kept := firstLines(string(s.head), most)
		s.tail.write(string(s.head[len(kept):]))
		s.head, s.headRunes = s.head[:len(kept)], utf8.RuneCountInString(kept)
		return true
	}
	s.atFreeze = firstLines(pending, most-s.headRunes)
	return s.atFreeze != pending
}

// firstLines returns the first lines of s with at most most runes; if the first line is
// longer, its beginning.
func firstLines(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return headLines(string([]rune(s)[:most]))
}

// fixed returns how many runes the view has in any case, and rest how many more it would
// have if nothing were omitted.
func (s *stream) fixed() int {
	if !s.frozen {
		return s.shown()
	}
	return s.headRunes + utf8.RuneCountInString(s.atFreeze)
}

func (s *stream) rest() int {
	if !s.frozen {
		return 0
	}
	after := utf8.RuneCount(s.tail.buf) + utf8.RuneCountInString(s.folder.pending())
	return max(0, after-utf8.RuneCountInString(s.atFreeze))
}

// text returns the head and at most room runes of the rest, and whether text between them
// was omitted, which can be read at offset.
func (s *stream) text(offset int64, room int, unpaged bool) (string, bool) {
	if !s.frozen {
		return string(s.head) + s.folder.pending(), false
	}
	rest := s.tail
	rest.buf = bytes.Clone(rest.buf)
	rest.write(s.folder.pending())
	repeated := utf8.RuneCountInString(s.atFreeze)
	if rest.dropped == 0 && !s.skipped && utf8.RuneCount(rest.buf) <= room+repeated {
		return string(s.head) + string(rest.buf), false
	}
	rest.max = room
	rest.shrink()
	last := tailLines(string(rest.buf))
	left := rest.dropped + int64(utf8.RuneCount(rest.buf)-utf8.RuneCountInString(last)-repeated)
	marker := fmt.Sprintf("[… about %d characters omitted; get_execution with offset=%d shows them …]", left, offset)
	switch {
	case unpaged:
		marker = fmt.Sprintf("[… about %d characters omitted …]", left)
	case s.skipped:
		marker = fmt.Sprintf("[… text omitted that was read before; get_execution with offset=%d shows it …]", offset)
	}
	return join(string(s.head)+s.atFreeze, marker, last), true
}

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
