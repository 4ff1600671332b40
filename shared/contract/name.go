package contract

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// EscapeName escapes a file name, or a path with slashes, so that JSON can represent it and
// different names stay different. A byte that is not UTF-8 becomes \xNN in lower-case hex,
// and a backslash that would start such a sequence becomes \x5c. Other names are unchanged.
// All paths on the wire are escaped in this way.
func EscapeName(name string) string {
	return EscapeNameAlso(name, func(int) bool { return false })
}

// EscapeNameAlso is EscapeName that also writes each byte of some characters as \xNN: of those
// for whose offset in the name also returns true. They must be spaces, control characters but
// NUL, or not ASCII.
func EscapeNameAlso(name string, also func(at int) bool) string {
	var b strings.Builder
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		_, escape := escapedByte(name[i:])
		if also(i) || escape || r == utf8.RuneError && n == 1 {
			for _, c := range []byte(name[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(name[i : i+n])
		}
		i += n
	}
	return b.String()
}

// UnescapeName reverses EscapeName and EscapeNameAlso. Sequences that neither of them writes,
// such as \x41 or \xFF, are unchanged, so unescaping never produces a slash, a NUL or a dot.
func UnescapeName(name string) string {
	if !strings.Contains(name, `\x`) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		c, ok := escapedByte(name)
		if ok {
			name = name[len(`\xNN`):]
		} else {
			c, name = name[0], name[1:]
		}
		b.WriteByte(c)
	}
	return b.String()
}

// escapedByte is the byte that name starts with, if it is escaped: a backslash, a space, a
// control character, or a byte of a character that is not ASCII.
func escapedByte(name string) (byte, bool) {
	if len(name) < len(`\xNN`) || name[:2] != `\x` {
		return 0, false
	}
	high, low := hexDigit(name[2]), hexDigit(name[3])
	if high < 0 || low < 0 {
		return 0, false
	}
	c := byte(high<<4 | low)
	return c, c == '\\' || c > 0 && c <= ' ' || c >= 0x7f
}

// hexDigit is the value of a lower-case hex digit, -1 for any other byte.
func hexDigit(c byte) int {
	return strings.IndexByte("0123456789abcdef", c)
}
