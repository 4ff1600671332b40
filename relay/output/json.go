package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"colabrelay/shared/bounded"
)

// JSON is a JSON value as a text without white space, with the keys of objects in order. As a
// tree of Go's values it would take up to a hundred times the memory: 10 MiB of [] took 1 GB.
type JSON []byte

// MarshalJSON implements json.Marshaler.
func (j JSON) MarshalJSON() ([]byte, error) { return j, nil }

// OneLine reports whether a notebook has the value on one line instead of a line for each value
// in it, because that would be too long.
func (j JSON) OneLine() bool {
	return len(j) > maxLaidOut || len(j) > alwaysLaidOut && laidOut(j) > layout*int64(len(j))
}

// written returns about how long a JSON text is in a notebook.
func written(raw []byte) int64 {
	if JSON(raw).OneLine() {
		return int64(len(raw))
	}
	return laidOut(raw)
}

// errForm is a text that is not JSON, or exceeds a bound of its form.
var errForm = fmt.Errorf("no JSON, nested deeper than %d, or an object with over %d keys", maxDepth, maxKeys)

// ParseJSON returns a JSON text as a value that is written with its keys in order and its numbers as
// they are. It fails for a text that is not JSON, is nested too deeply, or has an object with too many
// keys.
func ParseJSON(raw []byte) (JSON, error) {
	if !json.Valid(raw) || bounded.Depth(raw) > maxDepth {
		return nil, errForm
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\ufffd"))
	}
	o := ordering{from: raw, to: make([]byte, 0, len(raw))}
	o.value()
	if o.tooMany {
		return nil, errForm
	}
	return o.to, nil
}

// object returns raw as an object, or nil if it is none.
func object(raw json.RawMessage) JSON {
	value, err := ParseJSON(raw)
	if err != nil || value[0] != '{' {
		return nil
	}
	return value
}

// ordering copies a valid JSON text with the keys in order.
type ordering struct {
	from    []byte // what is not read
	to      []byte
	tooMany bool
}

// next returns the next byte that is no white space, without reading it.
func (o *ordering) next() byte {
	o.from = bytes.TrimLeft(o.from, " \t\r\n")
	return o.from[0]
}

// value copies the next value.
func (o *ordering) value() {
	switch o.next() {
	case '{':
		o.object()
	case '[':
		o.list()
	case '"':
		o.to = append(o.to, o.token(StringEnd(o.from))...)
	default:
		end := bytes.IndexAny(o.from, " \t\r\n,]}")
		if end < 0 {
			end = len(o.from)
		}
		o.to = append(o.to, o.token(end)...)
	}
}

// token reads n bytes.
func (o *ordering) token(n int) []byte {
	token := o.from[:n]
	o.from = o.from[n:]
	return token
}

// StringEnd returns the length of the JSON string at the beginning of text.
func StringEnd(text []byte) int {
	for i := 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

func (o *ordering) list() {
	o.to = append(o.to, o.token(1)...)
	for o.next() != ']' {
		if o.from[0] == ',' {
			o.to = append(o.to, o.token(1)...)
		}
		o.value()
	}
	o.to = append(o.to, o.token(1)...)
}

// member is a member of an object, with the place of its value in what was copied.
type member struct {
	name     string
	key      []byte // as it is written
	from, to int
}

func (o *ordering) object() {
	o.token(1)
	var members []member
	begin := len(o.to)
	for o.next() != '}' {
		if o.from[0] == ',' {
			o.token(1)
			o.next()
		}
		m := member{key: o.token(StringEnd(o.from))}
		_ = json.Unmarshal(m.key, &m.name) // which is valid
		o.next()
		o.token(1) // the colon
		m.from = len(o.to)
		o.value()
		m.to = len(o.to)
		if len(members) == maxKeys {
			o.tooMany = true
			continue
		}
		members = append(members, m)
	}
	o.token(1)
	o.sort(begin, members)
}

// sort writes the members of an object, whose values were copied from begin on, in order. Of
// those with the same key, the last one counts.
func (o *ordering) sort(begin int, members []member) {
	values := bytes.Clone(o.to[begin:])
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	o.to = append(o.to[:begin], '{')
	for i, m := range members {
		if i+1 < len(members) && members[i+1].name == m.name {
			continue
		}
		if o.to[len(o.to)-1] != '{' {
			o.to = append(o.to, ',')
		}
		o.to = append(append(append(o.to, m.key...), ':'), values[m.from-begin:m.to-begin]...)
	}
	o.to = append(o.to, '}')
}

// laidOut returns about how long a JSON text is if each of its values has a line.
func laidOut(raw []byte) int64 {
	const around = 8 // the levels around a payload, and a line break
	size, level, quoted := int64(len(raw)), int64(0), false
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{', b == '[':
			level++
			size += around + level
		case b == '}', b == ']':
			level--
			size += around + level
		case b == ',':
			size += around + level
		}
	}
	return size
}
