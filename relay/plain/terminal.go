package plain

import (
	"strings"
	"unicode/utf8"

	"colabrelay/shared/filename"
)

// Terminal filters the output of the user's code for a terminal. It keeps colours, carriage
// returns, backspaces and line erasures, because progress bars use them. It removes
// sequences that move the cursor to another line, set a title, write to the clipboard or
// change the terminal's settings. Unlike Text it keeps characters for private use, because
// fonts of terminals have symbols there. Output to anything but a terminal needs no filter.
type Terminal struct {
	pending string // an incomplete escape sequence or character
	styled  bool   // colours or other attributes are on
	row     filename.Row
}

// Reset returns the sequence that turns off colours and other attributes, or "" if none are
// on. Print it before text that is not the code's, so that this text is readable.
func (t *Terminal) Reset() string {
	if !t.styled {
		return ""
	}
	t.styled = false
	return "\x1b[0m"
}

// Filter returns the safe part of text. It holds back an incomplete sequence or character at
// the end until the next call.
func (t *Terminal) Filter(text string) string {
	s := t.pending + text
	t.pending = ""
	var b strings.Builder
	for len(s) > 0 {
		n, k := sequence(s)
		if n == 0 {
			r, size := utf8.DecodeRuneInString(s)
			if r == utf8.RuneError && !utf8.FullRuneInString(s) || filename.Joiner(r) && !utf8.FullRuneInString(s[size:]) {
				t.pending = s // the rest of the character will follow, or what a joiner joins
				break
			}
			if r == '\b' || r == '\r' || filename.Unknown(r) || keeps(&t.row, r, s[size:]) {
				b.WriteRune(r)
			}
			s = s[size:]
			continue
		}
		switch k {
		case open:
			t.pending, s = s, ""
			continue
		case colour, erase:
			seq := s[:n]
			if isC1(seq) {
				seq = "\x1b[" + seq[2:]
			}
			b.WriteString(seq)
			t.styled = t.styled && k != colour || k == colour && seq != "\x1b[m" && seq != "\x1b[0m"
		}
		s = s[n:]
	}
	return b.String()
}
