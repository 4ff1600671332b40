package notebook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

// maxNesting bounds how deep values are nested. Python's own reader fails at about this depth.
const maxNesting = 900

// span is a part of a file: the bytes from start to before end.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// element is an element of a list, or a member of an object with its key.
type element struct {
	key   string
	start int // of the key, or of the value in a list
	value span
}

// conflict is the start of a line that git writes between two versions.
var conflict = lazy.Regexp(`^(<{7}|={7}|>{7})(\s|$)`)

// fault returns the error of a text that is no notebook because of what stands at a place.
func fault(text []byte, at int, what string) error {
	if at >= len(text) {
		return fmt.Errorf("%w: it ends too early", ErrNotNotebook)
	}
	line := bytes.Count(text[:at], []byte("\n")) + 1
	if start := text[bytes.LastIndexByte(text[:at], '\n')+1:]; conflict().Match(start[:min(len(start), 8)]) {
		return fmt.Errorf("%w: line %d is a conflict marker of git: resolve the conflict first", ErrNotNotebook, line)
	}
	return fmt.Errorf("%w: %s at byte %d, in line %d", ErrNotNotebook, what, at, line)
}

// check reports what is no JSON from a place in a text on. Everything else here takes it for granted
// that the text was checked.
func check(text []byte, from int) error {
	standard := Standard(text[from:])
	switch {
	case !utf8.Valid(text):
		return fmt.Errorf("%w: it is not UTF-8 text", ErrNotNotebook)
	case !json.Valid(standard):
		err := json.Unmarshal(standard, &struct{}{})
		wrong, _ := errors.AsType[*json.SyntaxError](err)
		if strings.HasPrefix(err.Error(), "unexpected end") {
			return fault(text, len(text), "")
		}
		return fault(text, from+int(wrong.Offset)-1, err.Error())
	case bounded.Depth(text) > maxNesting:
		return fmt.Errorf("%w: values are nested more than %d deep", ErrNotNotebook, maxNesting)
	}
	return nil
}

// Standard returns JSON as Python writes it as standard JSON of the same length, with an empty list in
// place of each NaN, Infinity and -Infinity. What is no JSON in Python does not become JSON.
func Standard(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	text = bytes.Clone(text)
	for at := 0; at < len(text); at++ {
		if text[at] == '"' {
			at = stringEnd(text, at) - 1
			continue
		}
		for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
			if bytes.HasPrefix(text[at:], []byte(word)) {
				copy(text[at:], "["+strings.Repeat(" ", len(word)-2)+"]")
			}
		}
	}
	return text
}

// stringEnd returns where the string ends that begins at a place: after a quote with an even number of
// backslashes before it.
func stringEnd(text []byte, at int) int {
	for at++; ; at++ {
		length := bytes.IndexByte(text[min(at, len(text)):], '"')
		if length < 0 {
			return len(text)
		}
		at += length
		before := text[:at]
		if (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0 {
			return at + 1
		}
	}
}

// valueEnd returns where the value ends that begins at a place.
func valueEnd(text []byte, at int) int {
	switch text[at] {
	case '"':
		return stringEnd(text, at)
	case '{', '[':
		for depth := 0; at < len(text); {
			switch text[at] {
			case '"':
				at = stringEnd(text, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if at++; depth == 0 {
				return at
			}
		}
		return len(text)
	}
	for at++; at < len(text) && strings.IndexByte(",]} \t\r\n", text[at]) < 0; at++ {
	}
	return at
}

// skip passes what stands between keys and values.
func skip(text []byte, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n,:", text[at]) >= 0 {
		at++
	}
	return at
}

// elements yields the elements of a list or the members of an object. Another value has none.
func elements(text []byte, whole span) iter.Seq[element] {
	return func(yield func(element) bool) {
		inner := text[:max(whole.start, whole.end-1)]
		if len(inner) == whole.start || inner[whole.start] != '{' && inner[whole.start] != '[' {
			return
		}
		for at := skip(inner, whole.start+1); at < len(inner); at = skip(inner, at) {
			e := element{start: at}
			if inner[whole.start] == '{' {
				at = stringEnd(inner, at)
				e.key = decode(inner[e.start:at])
				if at = skip(inner, at); at == len(inner) {
					return
				}
			}
			e.value = span{at, valueEnd(inner, at)}
			if at = e.value.end; !yield(e) {
				return
			}
		}
	}
}

// Items visits the items of a JSON list without a copy of them. It visits nothing in JSON of another
// kind. As Python writes it, it may have NaN and Infinity.
func Items(list []byte, visit func(item []byte)) {
	if len(list) == 0 || list[0] != '[' {
		return
	}
	for e := range elements(list, span{0, len(list)}) {
		visit(list[e.value.start:e.value.end])
	}
}

// Members visits the members of a JSON object, as Items does those of a list.
func Members(object []byte, visit func(key string, value []byte)) {
	if len(object) == 0 || object[0] != '{' {
		return
	}
	for e := range elements(object, span{0, len(object)}) {
		visit(e.key, object[e.value.start:e.value.end])
	}
}

// lookup returns the value of a key in an object, or of a key in that, and so on; an empty span if
// there is none. Of equal keys the last one counts, as for Python.
func lookup(text []byte, at span, keys ...string) span {
	for _, key := range keys {
		var found span
		for e := range elements(text, at) {
			if e.key == key {
				found = e.value
			}
		}
		at = found
	}
	return at
}

// decode returns the text that a JSON string stands for. Half a surrogate pair becomes U+FFFD.
func decode(quoted []byte) (text string) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(bytes.Trim(quoted, `"`))
	}
	_ = json.Unmarshal(quoted, &text)
	return text
}

// escape matches an escape sequence, both halves of a surrogate pair as one.
var escape = lazy.Regexp(`\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..|\\.`)

// hasHalves reports whether JSON has halves of surrogate pairs, such as "\ud83d", which no text in
// UTF-8 has.
func hasHalves(value []byte) bool {
	if !bytes.Contains(value, []byte(`\u`)) {
		return false
	}
	for _, e := range escape().FindAll(value, -1) {
		if len(e) == len(`\ud83d`) {
			return true
		}
	}
	return false
}

// isEscaped reports whether a file has escape sequences in place of all characters that are not ASCII.
func isEscaped(text []byte) bool {
	for _, b := range bytes.TrimPrefix(text, []byte(byteOrderMark)) {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	for at := bytes.IndexByte(text, '\\'); at >= 0; at = bytes.IndexByte(text, '\\') {
		if rest := text[at+1:]; rest[0] == 'u' && string(rest[1:4]) >= "008" {
			return true
		}
		text = text[at+2:]
	}
	return false
}
