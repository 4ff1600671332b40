package tools

import (
	"bytes"
	"encoding/json"
)

// eachItem visits the items of a JSON list. Like eachMember it copies nothing, which
// encoding/json would do at each level, and visits nothing in JSON of another kind. The JSON
// must be valid.
func eachItem(list []byte, visit func(item []byte)) {
	walk(list, '[', func(at int) int {
		end := valueEnd(list, at)
		visit(list[at:end])
		return end
	})
}

// eachMember visits the members of a JSON object.
func eachMember(object []byte, visit func(key string, value []byte)) {
	walk(object, '{', func(at int) int {
		colon := spaceEnd(object, valueEnd(object, at))
		start := spaceEnd(object, min(colon+1, len(object)))
		end := valueEnd(object, start)
		var key string
		if json.Unmarshal(bytes.TrimSpace(object[at:colon]), &key) == nil {
			visit(key, object[start:end])
		}
		return end
	})
}

// walk calls next at the start of each element; next returns where it ends.
func walk(text []byte, opening byte, next func(at int) int) {
	at := spaceEnd(text, 0)
	if at >= len(text) || text[at] != opening {
		return
	}
	for at = spaceEnd(text, at+1); at < len(text) && text[at] != ']' && text[at] != '}'; {
		end := next(at)
		if end <= at {
			return // not JSON
		}
		if at = spaceEnd(text, end); at < len(text) && text[at] == ',' {
			at = spaceEnd(text, at+1)
		}
	}
}

func spaceEnd(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// valueEnd returns the offset after the value that begins at an offset.
func valueEnd(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			at = stringEnd(text, at)
		case '[', '{':
			depth++
			at++
		case ']', '}':
			if depth == 0 {
				return at // of the list around a number or word
			}
			depth--
			at++
		case ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return at
			}
			at++
			continue
		default:
			at++
			continue // a number or word
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

// stringEnd returns the offset after the string that begins at an offset.
func stringEnd(text []byte, at int) int {
	for at++; at < len(text); {
		i := bytes.IndexAny(text[at:], `"\`)
		if i < 0 {
			return len(text)
		}
		if at += i + 1; text[at-1] == '"' {
			return at
		}
		at++ // the escaped character
	}
	return len(text)
}
