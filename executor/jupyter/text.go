package jupyter

import (
	"encoding/json"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

var errNotString = errors.New("not a JSON string")

// Text decodes a raw JSON string and hands it on in pieces of at most max bytes
// (at least utf8.UTFMax), each cut at a rune's boundary, so that a string of any
// size needs little memory. A piece is valid only during its call. Invalid UTF-8
// and lone surrogates become U+FFFD.
func Text(raw json.RawMessage, max int, emit func(piece []byte)) error {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return errNotString
	}
	rest := raw[1 : len(raw)-1]
	buf := make([]byte, 0, max)
	for len(rest) > 0 {
		r, n, err := nextRune(rest)
		if err != nil {
			return err
		}
		rest = rest[n:]
		if len(buf)+utf8.RuneLen(r) > max {
			emit(buf)
			buf = buf[:0]
		}
		buf = utf8.AppendRune(buf, r)
		for len(rest) > 0 && len(buf) < max && plain(rest[0]) {
			buf = append(buf, rest[0])
			rest = rest[1:]
		}
	}
	if len(buf) > 0 {
		emit(buf)
	}
	return nil
}

// plain bytes stand for themselves.
func plain(b byte) bool { return b >= 0x20 && b < utf8.RuneSelf && b != '\\' && b != '"' }

// nextRune decodes the rune that s begins with, escaped or not.
func nextRune(s []byte) (r rune, n int, err error) {
	switch {
	case s[0] == '"':
		return 0, 0, errNotString
	case s[0] != '\\':
		r, n = utf8.DecodeRune(s)
		return r, n, nil
	case len(s) < 2:
		return 0, 0, errNotString
	}
	switch s[1] {
	case '"', '\\', '/':
		return rune(s[1]), 2, nil
	case 'b':
		return '\b', 2, nil
	case 'f':
		return '\f', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case 'u':
		return escapedRune(s)
	}
	return 0, 0, errNotString
}

// escapedRune decodes \uXXXX, or two of them that are a surrogate pair.
func escapedRune(s []byte) (rune, int, error) {
	high, ok := hex4(s)
	if !ok {
		return 0, 0, errNotString
	}
	if !utf16.IsSurrogate(high) {
		return high, 6, nil
	}
	if low, ok := hex4(s[6:]); ok {
		if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
			return r, 12, nil
		}
	}
	return utf8.RuneError, 6, nil
}

func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	for _, c := range s[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
