package hostconfig

import (
	"bytes"
	"encoding/json"

	"github.com/tailscale/hujson"
)

// style is how a JSON text is laid out.
type style struct {
	text    []byte
	newline string
	unit    string // of indentation: that of the first indented line
}

func styleOf(text []byte) style {
	s := style{text, newlineOf(text), "  "}
	for line := range bytes.Lines(text) {
		if indent := leadingSpace(line); indent != "" && len(indent) < len(bytes.TrimRight(line, "\r\n")) {
			s.unit = indent
			break
		}
	}
	return s
}

func newlineOf(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

func leadingSpace(line []byte) string {
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// indentAt is the indentation of the line that contains an offset.
func (s style) indentAt(offset int) string {
	return leadingSpace(s.text[bytes.LastIndexByte(s.text[:offset], '\n')+1:])
}

// encode lays a value out below a line with that indentation.
func (s style) encode(value any, indent string) hujson.ValueTrimmed {
	encoded := bytes.ReplaceAll(marshal(value, indent, s.unit), []byte("\n"), []byte(s.newline))
	parsed, err := hujson.Parse(encoded)
	if err != nil {
		panic(err) // our own JSON
	}
	return parsed.Value
}

func marshal(value any, indent, unit string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a path may contain &
	e.SetIndent(indent, unit)
	if err := e.Encode(value); err != nil {
		panic(err) // strings and lists and maps of them always encode
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// insert adds a member to the end of the object that begins at open, laid out like the
// other members. Comments before the closing brace stay before the new member.
func (s style) insert(o *hujson.Object, open int, key string, value any) {
	outer := s.indentAt(open)
	inner := outer + s.unit
	before, after := s.newline+inner, s.newline+outer
	comments := bytes.TrimRight(o.AfterExtra, " \t\r\n")
	trailingComma := false
	if n := len(o.Members); n > 0 {
		after = string(o.AfterExtra[len(comments):])
		trailingComma = o.Members[n-1].Value.AfterExtra != nil
		first := o.Members[0].Name
		switch {
		case bytes.ContainsRune(first.BeforeExtra, '\n'):
			inner = s.indentAt(first.StartOffset)
			before = s.newline + inner
		case len(comments) == 0:
			inner, before = outer, " "
		}
	}
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(key)}, Value: hujson.Value{Value: s.encode(value, inner)}}
	m.Name.BeforeExtra = append(bytes.Clone(comments), before...)
	m.Value.BeforeExtra = hujson.Extra(" ")
	if trailingComma {
		m.Value.AfterExtra = hujson.Extra{}
	}
	o.Members = append(o.Members, m)
	o.AfterExtra = hujson.Extra(after)
}
