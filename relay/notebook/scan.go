package notebook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/lazy"
)

// maxNesting bounds how deep values are nested. Python's own reader fails at about this depth.
const maxNesting = 900

// span is a part of a file: the bytes from start to before end.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// member is a key of an object with its value.
type member struct {
	key   string
	name  span // of the key, with its quotes
	value span
}

// scanner finds the places of values in JSON and checks its form. Like Python it also accepts
// NaN, Infinity and -Infinity.
type scanner struct {
	text  []byte
	at    int
	depth int
	notes
}

// notes are what a scanner notices on its way.
type notes struct {
	raw     bool // a character is not ASCII
	escaped bool // an escape sequence stands for a character that is not ASCII
}

// conflict is the start of a line that git writes between two versions.
var conflict = lazy.Regexp(`^(<{7}|={7}|>{7})(\s|$)`)

// fail returns the error of a text that is not JSON.
func (s *scanner) fail(what string) error {
	if s.at >= len(s.text) {
		return fmt.Errorf("%w: it ends too early", ErrNotNotebook)
	}
	line := bytes.Count(s.text[:s.at], []byte("\n")) + 1
	if start := s.text[bytes.LastIndexByte(s.text[:s.at], '\n')+1:]; conflict().Match(start[:min(len(start), 8)]) {
		return fmt.Errorf("%w: line %d is a conflict marker of git: resolve the conflict first", ErrNotNotebook, line)
	}
	return fmt.Errorf("%w: %s at byte %d, in line %d", ErrNotNotebook, what, s.at, line)
}

// next skips white space and returns the byte after it, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch b := s.text[s.at]; b {
		case ' ', '\n', '\r', '\t':
		default:
			return b
		}
	}
	return 0
}

// value passes one value and returns its place.
func (s *scanner) value() (span, error) {
	first := s.next()
	start, err := s.at, error(nil)
	switch {
	case first == '"':
		err = s.string()
	case first == '{':
		err = s.object(nil)
	case first == '[':
		err = s.array(nil)
	case first == '-' || first >= '0' && first <= '9':
		err = s.number()
	default:
		err = s.word("true", "false", "null", "NaN", "Infinity")
	}
	return span{start, s.at}, err
}

// object passes an object. visit gets each key and passes its value; nil passes all of them.
func (s *scanner) object(visit func(m *member) error) error {
	return s.list('{', '}', func() error {
		if s.next() != '"' {
			return s.fail("a key is missing")
		}
		m := member{name: span{start: s.at}}
		if err := s.string(); err != nil {
			return err
		}
		m.name.end = s.at
		if s.next() != ':' {
			return s.fail("a colon is missing")
		}
		s.at++
		s.next()
		if visit == nil {
			_, err := s.value()
			return err
		}
		m.key, m.value.start = decode(s.text[m.name.start:m.name.end]), s.at
		return visit(&m)
	})
}

// array passes an array. visit passes each element, which begins at s.at; nil passes all.
func (s *scanner) array(visit func() error) error {
	if visit == nil {
		visit = func() error { _, err := s.value(); return err }
	}
	return s.list('[', ']', func() error {
		s.next()
		return visit()
	})
}

// Items visits the items of a JSON list without a copy of them. It visits nothing in JSON of another
// kind, and stops where the text is no JSON. As Python writes it, it may have NaN and Infinity.
func Items(list []byte, visit func(item []byte)) {
	s := scanner{text: list}
	_ = s.array(func() error {
		at, err := s.value()
		if err == nil {
			visit(list[at.start:at.end])
		}
		return err
	})
}

// Members visits the members of a JSON object, as Items does those of a list.
func Members(object []byte, visit func(key string, value []byte)) {
	s := scanner{text: object}
	_ = s.object(func(m *member) error {
		at, err := s.value()
		if err == nil {
			visit(m.key, object[at.start:at.end])
		}
		return err
	})
}

// list passes elements between two delimiters.
func (s *scanner) list(opening, closing byte, element func() error) error {
	if s.next() != opening {
		return s.fail(fmt.Sprintf("another value stands where %q is expected", opening))
	}
	if s.depth++; s.depth > maxNesting {
		return s.fail(fmt.Sprintf("values are nested more than %d deep", maxNesting))
	}
	s.at++
	for count := 0; ; count++ {
		switch b := s.next(); {
		case b == closing && count == 0:
			return s.leave()
		case count == 0:
		case b == closing:
			return s.leave()
		case b != ',':
			return s.fail("a comma is missing")
		default:
			s.at++
		}
		if err := element(); err != nil {
			return err
		}
	}
}

func (s *scanner) leave() error {
	s.depth--
	s.at++
	return nil
}

// plainBytes are the bytes of a string that need no attention.
var plainBytes = func() (plain [256]bool) {
	for b := 0x20; b < utf8.RuneSelf; b++ {
		plain[b] = b != '"' && b != '\\'
	}
	return plain
}()

// string passes a string.
func (s *scanner) string() error {
	text := s.text
	for at := s.at + 1; at < len(text); at++ {
		b := text[at]
		switch {
		case plainBytes[b]:
		case b == '"':
			s.at = at + 1
			return nil
		case b >= utf8.RuneSelf:
			s.raw = true
		case b == '\\':
			n, err := s.escape(at)
			if err != nil {
				return err
			}
			at += n
		default:
			s.at = at
			return s.fail("a control character stands in a text")
		}
	}
	s.at = len(text)
	return s.fail("")
}

// escape returns the number of bytes of an escape sequence after its backslash.
func (s *scanner) escape(at int) (int, error) {
	rest := s.text[at+1:]
	switch {
	case len(rest) == 0:
		s.at = len(s.text)
	case strings.IndexByte(escapes, rest[0]) >= 0:
		return 1, nil
	case rest[0] == 'u' && len(rest) < 5:
		s.at = len(s.text)
	case rest[0] == 'u' && isHex(rest[1:5]):
		s.escaped = s.escaped || string(rest[1:3]) != "00" || rest[3] > '7'
		return 5, nil
	default:
		s.at = at
	}
	return 0, s.fail("a backslash begins no escape sequence of JSON")
}

func isHex(digits []byte) bool {
	for _, b := range digits {
		if strings.IndexByte("0123456789abcdefABCDEF", b) < 0 {
			return false
		}
	}
	return true
}

// number passes a number.
func (s *scanner) number() error {
	start := s.at
	if bytes.HasPrefix(s.text[start:], []byte("-I")) {
		s.at++
		return s.word("Infinity")
	}
	for s.at < len(s.text) && strings.IndexByte("+-.0123456789Ee", s.text[s.at]) >= 0 {
		s.at++
	}
	if !json.Valid(s.text[start:s.at]) {
		s.at = start
		return s.fail("a number has no valid form")
	}
	return nil
}

// word passes one of these words.
func (s *scanner) word(words ...string) error {
	for _, word := range words {
		if bytes.HasPrefix(s.text[s.at:], []byte(word)) {
			s.at += len(word)
			return nil
		}
	}
	return s.fail("a value is missing or has no valid form")
}
