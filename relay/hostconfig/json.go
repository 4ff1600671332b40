package hostconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"colabrelay/shared/bounded"
	"colabrelay/shared/lazy"
)

// byteOrderMark is what some Windows editors put before a text.
var byteOrderMark = []byte("\xef\xbb\xbf")

// entry is the relay in a host's list of servers.
type entry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`

	own, all any // decoded: the entry, and the file
}

// editJSON sets the relay's command in a host's JSON, which may contain comments and
// trailing commas. An existing entry keeps its other members, such as env, and also its
// args if it already starts a relay and c does not amend them.
func editJSON(text []byte, h Host, c Command) ([]byte, error) {
	bare := bytes.TrimPrefix(text, byteOrderMark)
	mark := text[:len(text)-len(bare)]
	if len(bytes.TrimSpace(bare)) == 0 {
		bare = []byte("{}\n")
	}
	have, exists, err := h.entry(bare)
	switch {
	case err != nil:
	case exists:
		bare, err = amend(bare, h, have, c)
	default:
		bare, err = set(bare, h.entryOf(c), h.list, serverName)
	}
	return slices.Concat(mark, bare), err
}

// amend changes the members of an existing entry that differ from what c wants.
func amend(text []byte, h Host, have entry, c Command) (_ []byte, err error) {
	target := h.entryOf(Command{Path: c.Path, Args: c.argsAfter(have)})
	change := func(member string, value any) {
		if err == nil {
			text, err = set(text, value, h.list, serverName, member)
		}
	}
	if target.Type != "" && have.Type != target.Type {
		change("type", target.Type)
	}
	if have.Command != target.Command {
		change("command", target.Command)
	}
	if have.Args == nil || !slices.Equal(have.Args, target.Args) {
		change("args", target.Args)
	}
	return text, err
}

// IsRelay reports whether a program is a relay, perhaps in another folder or of another
// release.
func IsRelay(program string) bool {
	name := strings.ToLower(program[strings.LastIndexAny(program, `/\`)+1:])
	name = strings.TrimSuffix(name, ".exe")
	name = strings.TrimPrefix(name, "colab-")
	return name == "relay" || strings.HasPrefix(name, "relay-")
}

// parse parses JSON with comments. Its errors have the form "line 1, column 2: not valid
// JSON: cause".
func parse(text []byte) (hujson.Value, error) {
	if err := checkSize(text); err != nil {
		return hujson.Value{}, err
	}
	root, err := hujson.Parse(text)
	if err != nil {
		place, cause, _ := strings.Cut(strings.TrimPrefix(err.Error(), "hujson: "), ": ")
		return root, fmt.Errorf("%s: not valid JSON: %s", place, cause)
	}
	return root, nil
}

// member returns the value of a key, or nil. If the key occurs twice, the last one counts.
func member(o *hujson.Object, key string) *hujson.Value {
	for i := range slices.Backward(o.Members) {
		if name, ok := o.Members[i].Name.Value.(hujson.Literal); ok && name.String() == key {
			return &o.Members[i].Value
		}
	}
	return nil
}

// find returns the value at a path of keys, or nil.
func find(v *hujson.Value, path ...string) *hujson.Value {
	for _, key := range path {
		o, ok := v.Value.(*hujson.Object)
		if !ok {
			return nil
		}
		if v = member(o, key); v == nil {
			return nil
		}
	}
	return v
}

// set puts a value at a path of keys, and adds the objects that are missing.
func set(text []byte, value any, path ...string) ([]byte, error) {
	root, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	style := styleOf(text)
	at := &root
	for i, key := range path {
		o, ok := at.Value.(*hujson.Object)
		if !ok {
			return nil, errors.New("what should contain the servers is not an object")
		}
		next := member(o, key)
		if next == nil {
			for _, missing := range slices.Backward(path[i+1:]) {
				value = map[string]any{missing: value}
			}
			style.insert(o, at.StartOffset, key, value)
			return root.Pack(), nil
		}
		at = next
	}
	at.Value = style.encode(value, style.indentAt(at.StartOffset))
	return root.Pack(), nil
}

// removeJSON deletes the relay's entry. Comments outside the entry stay.
func removeJSON(text []byte, h Host) ([]byte, error) {
	bare := bytes.TrimPrefix(text, byteOrderMark)
	root, err := parse(bare)
	if err != nil {
		return nil, err
	}
	list, ok := find(&root, h.list).Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%q is not an object", h.list)
	}
	for i, m := range slices.Backward(list.Members) {
		if m.Name.Value.(hujson.Literal).String() != serverName {
			continue
		}
		program := cmp.Or(find(&m.Value, "command"), &hujson.Value{})
		if text, ok := program.Value.(hujson.Literal); !ok || !IsRelay(text.String()) {
			return nil, fmt.Errorf("%q occurs twice in %q, once for another program", serverName, h.list)
		}
		removeMember(list, i)
	}
	return slices.Concat(text[:len(text)-len(bare)], root.Pack()), nil
}

// removeMember deletes a member and keeps the comments around it.
func removeMember(o *hujson.Object, i int) {
	gone := o.Members[i]
	last := i == len(o.Members)-1
	o.Members = slices.Delete(o.Members, i, i+1)
	between := join(gone.Name.BeforeExtra, gone.Value.AfterExtra)
	switch {
	case !last:
		next := &o.Members[i].Name
		next.BeforeExtra = join(between, next.BeforeExtra)
		return
	case i > 0 && gone.Value.AfterExtra == nil: // no comma may follow what is now the last member
		before := &o.Members[i-1].Value
		between, before.AfterExtra = join(before.AfterExtra, between), nil
	case i > 0 && o.Members[i-1].Value.AfterExtra == nil:
		o.Members[i-1].Value.AfterExtra = hujson.Extra{} // keeps its comma
	}
	o.AfterExtra = join(between, o.AfterExtra)
	if i == 0 && len(bytes.TrimSpace(o.AfterExtra)) == 0 {
		o.AfterExtra = nil
	}
}

// join puts two texts of spaces and comments together. Spaces at the end of the first go
// unless they end a comment.
func join(a, b hujson.Extra) hujson.Extra {
	comments := bytes.TrimRight(a, " \t\r\n")
	spaces := b[:len(b)-len(bytes.TrimLeft(b, " \t\r\n"))]
	if len(comments) > 0 && !bytes.Contains(spaces, []byte("\n")) {
		return slices.Concat(a, b)
	}
	return slices.Concat(comments, b)
}

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

// Bounds of a JSON text beside its size. The parser calls itself at each level, and Go
// ends a program whose stack outgrows its limit. Each value takes some hundred bytes.
const (
	maxDepth  = 1000
	maxValues = 1_000_000
)

// notStructure matches strings and comments, also those without an end.
var notStructure = lazy.Regexp(`(?s)"(?:\\.|[^"\\])*"?|//[^\n]*|/\*.*?(?:\*/|$)`)

// checkSize returns an error for a JSON text that is too deep or has too many values. It
// does not parse the text.
func checkSize(text []byte) error {
	structure := notStructure().ReplaceAll(text, nil)
	values := 0
	for _, mark := range []string{"{", "[", ","} {
		values += bytes.Count(structure, []byte(mark))
	}
	switch {
	case bounded.Depth(structure) > maxDepth:
		return fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	case values > maxValues:
		return fmt.Errorf("it has more than %d values", maxValues)
	}
	return nil
}
