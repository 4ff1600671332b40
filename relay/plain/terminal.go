package plain

import (
	"strings"
	"unicode/utf8"
)

// Terminal is for what the user's code prints to a terminal: colours, carriage return,
// backspace and the erasing of a line stay, as progress bars use them. Whatever moves
// the cursor to another line, sets a title, writes the clipboard or changes the
// terminal's settings is removed. A stream that is no terminal gets it all as it is.
type Terminal struct {
	begun  string // an escape sequence whose end has not come
	styled bool   // colours or other attributes are on
}

// Reset is what ends the colours and other attributes that are on, "" where none are: the
// text that follows is not the code's, and must be readable.
func (t *Terminal) Reset() string {
	if !t.styled {
		return ""
	}
	t.styled = false
	return "\x1b[0m"
}

// Filter is the part of text that may be shown now.
func (t *Terminal) Filter(text string) string {
	s := t.begun + text
	t.begun = ""
	var b strings.Builder
	for len(s) > 0 {
		n, k := sequence(s)
		if n == 0 {
			r, size := utf8.DecodeRuneInString(s)
			if r == utf8.RuneError && size == 1 && !utf8.FullRuneInString(s) && len(s) < utf8.UTFMax {
				t.begun = s // the rest of a character is to come
				break
			}
			if r == '\b' || !invisible(r) {
				b.WriteRune(r)
			}
			s = s[size:]
			continue
		}
		switch k {
		case open:
			t.begun, s = s, ""
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
