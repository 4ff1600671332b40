package jupyter

import (
	"bytes"
	"encoding/json"
	"errors"
)

var (
	errSyntax = errors.New("not a JSON object")
	errArray  = errors.New("not a JSON array")
)

// fields calls each with the members of a JSON object. A value is a part of raw. It checks
// only as much syntax as it needs to find the ends of values; decoding a value checks the
// rest.
func fields(raw []byte, each func(key string, value json.RawMessage)) error {
	s := scanner{rest: raw}
	if !s.take('{') {
		return errSyntax
	}
	for more := !s.take('}'); more; {
		key, ok := s.key()
		if !ok || !s.take(':') {
			return errSyntax
		}
		value, ok := s.value()
		if !ok {
			return errSyntax
		}
		each(key, value)
		if more = s.take(','); !more && !s.take('}') {
			return errSyntax
		}
	}
	s.space()
	if len(s.rest) > 0 {
		return errSyntax
	}
	return nil
}

// items calls each with the items of a JSON array, as fields does with an object's members.
// Null has none.
func items(raw []byte, each func(item json.RawMessage)) error {
	if string(raw) == "null" {
		return nil
	}
	s := scanner{rest: raw}
	if !s.take('[') {
		return errArray
	}
	for more := !s.take(']'); more; {
		item, ok := s.value()
		if !ok {
			return errArray
		}
		each(item)
		if more = s.take(','); !more && !s.take(']') {
			return errArray
		}
	}
	return nil
}

// scanner reads JSON text.
type scanner struct {
	rest []byte
}

func (s *scanner) space() { s.rest = bytes.TrimLeft(s.rest, " \t\r\n") }

// take skips white space and, if it follows, c.
func (s *scanner) take(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) key() (string, bool) {
	s.space()
	n, ok := stringEnd(s.rest)
	if !ok {
		return "", false
	}
	var key string
	err := json.Unmarshal(s.rest[:n], &key)
	s.rest = s.rest[n:]
	return key, err == nil
}

// value reads one value, up to the end of the string or until all brackets are closed.
func (s *scanner) value() (json.RawMessage, bool) {
	s.space()
	start, depth := s.rest, 0
	for n := 0; n < len(start); n++ {
		switch c := start[n]; c {
		case '"':
			size, ok := stringEnd(start[n:])
			if !ok {
				return nil, false
			}
			n += size - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return s.cut(start, n)
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return s.cut(start, n)
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return s.cut(start, n+1)
		}
	}
	return nil, false // the bracket of the object is missing
}

func (s *scanner) cut(start []byte, n int) (json.RawMessage, bool) {
	s.rest = start[n:]
	return start[:n:n], n > 0
}

// stringEnd returns the length of the JSON string that b begins with, quotes included.
func stringEnd(b []byte) (int, bool) {
	if len(b) == 0 || b[0] != '"' {
		return 0, false
	}
	for n := 1; n < len(b); {
		quote := bytes.IndexByte(b[n:], '"')
		if quote < 0 {
			return 0, false
		}
		end := n + quote
		escapes := 0
		for b[end-1-escapes] == '\\' {
			escapes++ // the opening quote ends the loop
		}
		n = end + 1
		if escapes%2 == 0 {
			return n, true
		}
	}
	return 0, false
}
