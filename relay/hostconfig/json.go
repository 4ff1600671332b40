package hostconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// byteOrderMark is what editors of Windows put before a text.
var byteOrderMark = []byte("\xef\xbb\xbf")

// entry is the relay in a host's list of servers.
type entry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// editJSON sets the relay's command in a host's JSON. An entry that is there keeps its
// other members, such as env; its args too, where it is a relay's already.
func editJSON(text []byte, h Host, c Command) ([]byte, error) {
	bare := bytes.TrimPrefix(text, byteOrderMark)
	mark := text[:len(text)-len(bare)]
	if len(bytes.TrimSpace(bare)) == 0 {
		bare = []byte("{}\n")
	}
	if err := valid(bare); err != nil {
		return nil, err
	}
	wanted := entry{Command: c.Path, Args: c.Args}
	if h.typed {
		wanted.Type = "stdio"
	}
	place := []string{h.list, serverName}
	raw, there, err := find(bare, place)
	if err != nil {
		return nil, err
	}
	if there {
		bare, err = amend(bare, place, raw, wanted)
	} else {
		bare, err = set(bare, 0, place, wanted)
	}
	return slices.Concat(mark, bare), err
}

// amend changes the members of an entry that differ.
func amend(text []byte, place []string, raw []byte, wanted entry) ([]byte, error) {
	var have entry
	if err := json.Unmarshal(raw, &have); err != nil || raw[0] != '{' {
		return nil, fmt.Errorf("its entry %q is no server", serverName)
	}
	var err error
	change := func(member string, value any) {
		if err == nil {
			text, err = set(text, 0, append(slices.Clone(place), member), value)
		}
	}
	if wanted.Type != "" && have.Type != wanted.Type {
		change("type", wanted.Type)
	}
	if have.Command != wanted.Command {
		change("command", wanted.Command)
	}
	if have.Args == nil || !isRelay(have.Command) && !slices.Equal(have.Args, wanted.Args) {
		change("args", wanted.Args)
	}
	return text, err
}

// isRelay tells a relay of another folder or release from another program.
func isRelay(program string) bool {
	name := program[strings.LastIndexAny(program, `/\`)+1:]
	name = strings.TrimSuffix(filepath.Base(name), ".exe")
	return name == "relay" || strings.HasPrefix(name, "relay-")
}

func programJSON(text []byte, h Host) (string, bool) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	if valid(text) != nil {
		return "", false
	}
	raw, there, err := find(text, []string{h.list, serverName})
	var have entry
	if err != nil || !there || json.Unmarshal(raw, &have) != nil {
		return "", false
	}
	return have.Command, true
}

// valid refuses what is not plain JSON: comments and trailing commas, which some hosts
// allow, could not be kept for sure.
func valid(text []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(text, &whole)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line := 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
		return fmt.Errorf("line %d is not plain JSON (%v)", line, err)
	}
	return err
}

// member is one of an object's, and where its value lies in the text.
type member struct {
	key        string
	start, end int
}

// object is where a JSON object lies in a text.
type object struct {
	open, close int // its braces
	members     []member
}

// last is the member that counts where a key comes twice.
func (o object) last(key string) (member, bool) {
	for _, m := range slices.Backward(o.members) {
		if m.key == key {
			return m, true
		}
	}
	return member{}, false
}

// objectAt takes apart the object whose text begins at at; the text is valid JSON.
func objectAt(text []byte, at int) (object, error) {
	d := json.NewDecoder(bytes.NewReader(text[at:]))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return object{}, errors.New("what should hold the servers is not an object")
	}
	o := object{open: at + int(d.InputOffset()) - 1}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return object{}, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return object{}, err
		}
		end := at + int(d.InputOffset())
		o.members = append(o.members, member{key.(string), end - len(raw), end})
	}
	_, err := d.Token()
	o.close = at + int(d.InputOffset()) - 1
	return o, err
}

// find is the value at a path of keys.
func find(text []byte, path []string) (raw []byte, there bool, err error) {
	at, end := 0, len(text)
	for _, key := range path {
		o, err := objectAt(text, at)
		if err != nil {
			return nil, false, err
		}
		m, ok := o.last(key)
		if !ok {
			return nil, false, nil
		}
		at, end = m.start, m.end
	}
	return text[at:end], true, nil
}

// set puts value at a path of keys below the object that begins at at, and makes the
// objects that are missing.
func set(text []byte, at int, path []string, value any) ([]byte, error) {
	o, err := objectAt(text, at)
	if err != nil {
		return nil, err
	}
	style := styleOf(text)
	if m, ok := o.last(path[0]); ok {
		if len(path) > 1 {
			return set(text, m.start, path[1:], value)
		}
		encoded, err := style.encode(value, lineIndent(text, m.start))
		return slices.Concat(text[:m.start], encoded, text[m.end:]), err
	}
	for _, key := range slices.Backward(path[1:]) {
		value = map[string]any{key: value}
	}
	return style.insert(text, o, path[0], value)
}
