// Package plain makes text from outside safe to show. Text from an executor, a tunnel, a
// file name or a host's configuration reaches a terminal or a model only through this
// package. It removes control sequences and invisible characters, and bounds the length.
//
// It knows nothing about the source of a text and never fails. Start reading at Line and
// Text. Terminal, for the output of the user's own code, is the one exception.
package plain

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/filename"
)

// Bounds in characters (runes).
const (
	MaxLine = 2_000  // a message, a name, a path
	MaxText = 40_000 // a text of several lines, such as a whole result
)

// Line returns s on one line, at most MaxLine characters. It replaces line breaks and tabs
// by spaces, and removes escape sequences and invisible characters.
func Line(s string) string {
	return bound(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, clean(s)), MaxLine)
}

// Name returns the name of a file on one line, at most MaxLine characters. A name that Line
// would change is quoted, with escapes as in Go, so that it is neither empty nor like another.
func Name(s string) string {
	if Line(s) == s {
		return s
	}
	return bound(strconv.Quote(s), MaxLine)
}

// Text returns s with its line breaks and tabs, at most MaxText characters. It removes
// escape sequences and invisible characters.
func Text(s string) string { return bound(clean(s), MaxText) }

// bound shortens s to max characters.
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

// clean returns s without escape sequences and invisible characters.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	var row joiners
	for len(s) > 0 {
		if n, _ := sequence(s); n > 0 {
			s = s[min(n, len(s)):]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		if r != '\r' && row.keep(r) { // a byte that is not UTF-8 becomes U+FFFD
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

// isClean saves copying ordinary text.
func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			var row joiners
			return c >= utf8.RuneSelf && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r == '\r' || !row.keep(r) })
		}
	}
	return true
}

// invisible reports whether r must be removed. The callers handle line breaks, tabs and
// carriage returns.
func invisible(r rune) bool { return r != '\n' && r != '\t' && r != '\r' && !filename.Visible(r) }

// maxJoiners bounds the joiners in a row: a row of them can spell hidden text. No emoji or
// script needs more.
const maxJoiners = 2

// joiners counts the joiners since the last visible character of a text.
type joiners int

// keep reports whether r, the next character, stays in the text.
func (j *joiners) keep(r rune) bool {
	switch {
	case invisible(r):
		return false
	case !filename.Joiner(r):
		*j = 0
		return true
	}
	*j = min(*j+1, maxJoiners+1)
	return *j <= maxJoiners
}
