// Package plain makes text from outside safe to show. Text from an executor, a tunnel, a
// file name or a host's configuration reaches a terminal or a model only through this
// package. It removes control sequences and invisible characters, and bounds the length.
//
// It knows nothing about the source of a text and never fails. Start reading at Line and
// Text. Terminal, for the output of the user's own code, is the one exception.
package plain

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// Bounds in characters (runes).
const (
	MaxLine = 2_000  // a message
	MaxName = 16_384 // a path on the VM: four for each byte that it may have
	MaxText = 40_000 // a text of several lines, such as a whole result
)

// Clip returns Line of s in at most so many characters.
func Clip(s string, most int) string { return bound(Line(s), most) }

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

// Name returns a file name on the VM, or a path with slashes, as the executor writes it, in a
// form that every reader sees whole and that means this file alone wherever a tool or a command
// takes a path on the VM. What Line would change, a space at either end and those that are not
// the usual one are written as \xNN, byte by byte; see contract.EscapeName.
func Name(path string) string { return bound(escapedName(path, ""), MaxName) }

// QuoteName is Quote of Name. Quotation marks in the name are escaped too.
func QuoteName(path string) string {
	return "“" + bound(escapedName(path, "“”"), MaxName) + "”"
}

// WordName is Word of Name, and quotes it where Word would.
func WordName(path string) string {
	if name := Name(path); Word(name) == name {
		return name
	}
	return QuoteName(path)
}

// escapedName escapes the characters of also too.
func escapedName(path, also string) string {
	path = contract.UnescapeName(path)
	var row filename.Row
	return contract.EscapeNameAlso(path, func(at int) bool {
		r, n := utf8.DecodeRuneInString(path[at:])
		next, _ := utf8.DecodeRuneInString(path[at+n:])
		if !(r == utf8.RuneError && n == 1) && row.Keeps(r, next) && !strings.ContainsRune(also, r) && !isBlank(r) && !(r == ' ' && atEnd(path, at)) {
			return false
		}
		row = filename.Row{} // a joiner behind it is behind the escape
		return true
	})
}

// atEnd reports whether a name in the path begins or ends with the byte at an offset.
func atEnd(path string, at int) bool {
	return at == 0 || path[at-1] == '/' || at+1 == len(path) || path[at+1] == '/'
}

// isBlank reports whether r looks like a space or nothing and is another character. The wide one
// of East Asian texts does not look like it.
func isBlank(r rune) bool {
	return r != ' ' && r != '\u3000' && unicode.Is(unicode.Zs, r) || r == '\u2800'
}

// Quote returns Line of a text from outside between curly quotation marks, which it cannot
// contain itself: what looks like the end of the quotation is its end.
func Quote(s string) string {
	return "“" + strings.NewReplacer("“", `"`, "”", `"`).Replace(Line(s)) + "”"
}

// Word returns Line of a name or a short text from outside for a sentence of the relay's. One that
// could be taken for words of the relay's, because it has a character that is or looks like a
// space, is quoted.
func Word(s string) string {
	s = Line(s)
	apart := func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N, unicode.M) && (r > unicode.MaxASCII || r == ' ')
	}
	if s == "" || strings.ContainsFunc(s, apart) {
		return Quote(s)
	}
	return s
}

// Text returns s with its line breaks and tabs, at most MaxText characters. It removes
// escape sequences and invisible characters.
func Text(s string) string { return bound(clean(s), MaxText) }

// Document returns all of Text of s, for a file.
func Document(s string) string { return clean(s) }

// bound shortens s to max characters.
func bound(s string, max int) string {
	if len(s) <= max {
		return s
	}
	n := 0
	for i := range s {
		if n == max-1 {
			return strings.TrimRightFunc(s[:i], filename.Joiner) + "…"
		}
		n++
	}
	return s
}

// clean returns s without escape sequences and invisible characters. A character that readers
// see differently, and a byte that is not UTF-8, become U+FFFD.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	var row filename.Row
	for len(s) > 0 {
		if n, _ := sequence(s); n > 0 {
			s = s[min(n, len(s)):]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		if filename.Unknown(r) {
			r = utf8.RuneError
		}
		if keeps(&row, r, s) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// keeps reports whether r, which rest follows, is shown.
func keeps(row *filename.Row, r rune, rest string) bool {
	if r == '\n' || r == '\t' {
		*row = filename.Row{}
		return true
	}
	next := rune(0)
	if filename.Joiner(r) {
		next, _ = utf8.DecodeRuneInString(rest)
	}
	return row.Keeps(r, next)
}

// isClean saves copying ordinary text.
func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return c >= utf8.RuneSelf && utf8.ValidString(s) && allKept(s)
		}
	}
	return true
}

func allKept(s string) bool {
	var row filename.Row
	for i, r := range s {
		if !keeps(&row, r, s[i+utf8.RuneLen(r):]) {
			return false
		}
	}
	return true
}

// Unshown returns the characters of s that Text removes or replaces, in their order.
func Unshown(s string) []rune {
	var all []rune
	var row filename.Row
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if s = s[n:]; !keeps(&row, r, s) || r == utf8.RuneError && n == 1 {
			all = append(all, r)
		}
	}
	return all
}
