package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
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
