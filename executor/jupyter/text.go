package jupyter

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var errNotString = errors.New("not a JSON string")

// Text decodes a JSON string and passes the text to emit in pieces of at most size bytes
// (but at least 4), cut between characters. It never holds the complete text, and a piece
// is valid only during its call. As in encoding/json, invalid characters become U+FFFD.
// When it returns an error, the text before the fault has been emitted.
func Text(raw json.RawMessage, size int, emit func(chunk []byte)) error {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return errNotString
	}
	t := texter{rest: raw[1 : len(raw)-1], emit: emit, max: max(size, utf8.UTFMax)}
	t.chunk = make([]byte, 0, min(t.max, len(raw)))
	for len(t.rest) > 0 {
		if err := t.step(); err != nil {
			t.flush()
			return err
		}
	}
	t.flush()
	return nil
}

// texter is the state of one call of Text.
type texter struct {
	rest  []byte
	chunk []byte
	max   int
	emit  func([]byte)
}

// step decodes the plain text up to the next escape, or one escape.
func (t *texter) step() error {
	n := 0
	for n < len(t.rest) && t.rest[n] != '\\' {
		if c := t.rest[n]; c == '"' || c < ' ' {
			return errNotString
		}
		n++
	}
	if n > 0 {
		t.plain(t.rest[:n])
		t.rest = t.rest[n:]
		return nil
	}
	return t.escape()
}

func (t *texter) plain(run []byte) {
	if utf8.Valid(run) {
		t.valid(run)
		return
	}
	for len(run) > 0 {
		r, size := utf8.DecodeRune(run) // U+FFFD for each invalid byte
		t.rune(r)
		run = run[size:]
	}
}

// valid adds UTF-8 text, divided into chunks between characters.
func (t *texter) valid(run []byte) {
	for len(run) > 0 {
		n := min(len(run), t.max-len(t.chunk))
		for n > 0 && n < len(run) && !utf8.RuneStart(run[n]) {
			n--
		}
		if n == 0 {
			t.flush()
			continue
		}
		t.chunk = append(t.chunk, run[:n]...)
		run = run[n:]
	}
}

func (t *texter) rune(r rune) {
	if len(t.chunk)+utf8.RuneLen(r) > t.max {
		t.flush()
	}
	t.chunk = utf8.AppendRune(t.chunk, r)
}

func (t *texter) flush() {
	if len(t.chunk) > 0 {
		t.emit(t.chunk)
		t.chunk = t.chunk[:0]
	}
}

var escapes = [256]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// escape decodes one escape, or the two of a surrogate pair.
func (t *texter) escape() error {
	if len(t.rest) < 2 {
		return errNotString
	}
	if r := escapes[t.rest[1]]; r != 0 {
		t.rune(r)
		t.rest = t.rest[2:]
		return nil
	}
	r, ok := unit(t.rest)
	if !ok {
		return errNotString
	}
	t.rest = t.rest[6:]
	if utf16.IsSurrogate(r) {
		low, _ := unit(t.rest)
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			t.rest = t.rest[6:]
		}
	}
	t.rune(r)
	return nil
}

// unit reads \uXXXX at the start of b.
func unit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(r), err == nil
}
