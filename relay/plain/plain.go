// Package plain makes text from outside fit to be shown: what an executor, a tunnel, a
// file's name or a host's configuration says reaches a terminal or a model only
// through here. It removes what a terminal would obey and what a reader would not see,
// and bounds the length.
//
// It knows nothing of where a text is from and never fails. Start reading at Line and
// Text; Terminal is the one exception, for what the user's own code prints.
package plain

import (
	"strings"
	"unicode/utf8"

	"colabrelay/shared/filename"
)

// Bounds of what is shown, in characters (runes).
const (
	MaxLine = 2_000  // a message, a name, a path
	MaxText = 40_000 // a text of several lines, as long as a whole result may be
)

// Line is s as part of one line, at most MaxLine characters. Line breaks and tabs become
// spaces; escape sequences and invisible characters are removed.
func Line(s string) string {
	return bound(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, clean(s)), MaxLine)
}

// Text is s as lines, at most MaxText characters. Line breaks and tabs stay.
func Text(s string) string { return bound(clean(s), MaxText) }

// bound cuts s after max characters.
func bound(s string, max int) string {
	if len(s) <= max {
		return s
	}
	n := 0
	for i := range s {
		if n == max-1 {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// clean is s without escape sequences and invisible characters.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		if n, _ := sequence(s); n > 0 {
			s = s[min(n, len(s)):]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		if r != '\r' && !invisible(r) { // U+FFFD stands for a byte that is no UTF-8
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

// isClean spares the usual text a copy.
func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return c >= utf8.RuneSelf && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r == '\r' || invisible(r) })
		}
	}
	return true
}

// invisible reports what must not be shown. Line breaks, tabs and carriage returns have
// rules of their own.
func invisible(r rune) bool { return r != '\n' && r != '\t' && r != '\r' && !filename.Visible(r) }
