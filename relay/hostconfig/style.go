package hostconfig

import (
	"bytes"
	"encoding/json"
	"slices"
)

// style is how a JSON text is laid out.
type style struct {
	newline string
	unit    string // of indentation
}

// styleOf takes the first indented line for the unit.
func styleOf(text []byte) style {
	s := style{"\n", "  "}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	for line := range bytes.Lines(text) {
		if indent := leading(line); indent != "" && len(indent) < len(bytes.TrimRight(line, "\r\n")) {
			s.unit = indent
			break
		}
	}
	return s
}

// leading is the white space a line begins with.
func leading(line []byte) string {
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// lineIndent is the indentation of the line that at is in.
func lineIndent(text []byte, at int) string {
	return leading(text[bytes.LastIndexByte(text[:at], '\n')+1:])
}

func (s style) encode(value any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a path may hold &
	e.SetIndent(indent, s.unit)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(bytes.TrimRight(b.Bytes(), "\n"), []byte("\n"), []byte(s.newline)), nil
}

// insert adds a member to the end of an object, in lines like the ones there.
func (s style) insert(text []byte, o object, key string, value any) ([]byte, error) {
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	outer := lineIndent(text, o.open)
	inner := outer + s.unit
	after, before, end := o.open+1, s.newline+inner, s.newline+outer
	rest := text[o.close:] // what stands between the braces of an empty object is blank
	if n := len(o.members); n > 0 {
		after = o.members[n-1].end
		rest, end = text[after:], ""
		if bytes.ContainsRune(text[o.open:o.members[0].start], '\n') {
			inner = lineIndent(text, o.members[0].start)
			before = "," + s.newline + inner
		} else {
			inner, before = outer, ", "
		}
	}
	encoded, err := s.encode(value, inner)
	return slices.Concat(text[:after], []byte(before), name, []byte(": "), encoded, []byte(end), rest), err
}
