package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlList is the table that contains the tables of Codex's servers.
const tomlList = "mcp_servers"

// maxTOML bounds a TOML text, in bytes. The parser compares each table with all others.
const maxTOML = 512 << 10

// ofTOML is any host whose file is TOML.
var ofTOML Host

// errTOMLForm: the entry is not a table of its own.
var errTOMLForm = fmt.Errorf("its entry %q is not written as a table [%s.%s]", serverName, tomlList, serverName)

// editTOML appends the relay's table to the end of a file, where any table may be, or
// changes command and args in the table that exists.
func editTOML(text []byte, c Command) ([]byte, error) {
	have, exists, err := ofTOML.entry(text)
	switch {
	case err != nil:
		return nil, err
	case exists && have.Command == c.Path && have.Args != nil && slices.Equal(have.Args, c.argsAfter(have)):
		return text, nil
	case exists:
		return amendTOML(text, have, c)
	}
	newline, before := newlineOf(text), ""
	if len(text) > 0 {
		before = newline
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		before += newline
	}
	edited := slices.Concat(text, []byte(before), []byte(strings.ReplaceAll(tableOf(c), "\n", newline)))
	if have, _, err := ofTOML.entry(edited); err != nil || have.Command != c.Path {
		return nil, errors.New("a table cannot be added after the form in which it lists the servers")
	}
	return edited, nil
}

// amendTOML changes the members of the relay's table that differ from c. As in JSON, args
// stay if the table already starts a relay and c does not amend them.
func amendTOML(text []byte, have entry, c Command) ([]byte, error) {
	own, err := findTOML(text)
	if err != nil || own.command.end == 0 {
		return nil, errTOMLForm
	}
	command := "command = " + string(marshal(c.Path, "", ""))
	want := entry{Command: c.Path, Args: c.argsAfter(have)}
	args := "args = " + string(marshal(want.Args, "", ""))
	edits := []edit{{own.command, command}}
	if have.Args == nil || !slices.Equal(have.Args, want.Args) {
		if own.args.end == 0 {
			edits[0].text += newlineOf(text) + args
		} else {
			edits = append(edits, edit{own.args, args})
		}
	}
	edited := apply(text, edits)
	if now, _, err := ofTOML.entry(edited); err != nil || now.Command != want.Command || !slices.Equal(now.Args, want.Args) || !sameOthers(text, edited) {
		return nil, errTOMLForm
	}
	return edited, nil
}

// removeTOML deletes the relay's tables, from each header to the last line of its values,
// and an empty line before them, or after them at the beginning of the text.
func removeTOML(text []byte) ([]byte, error) {
	own, err := findTOML(text)
	if err != nil || len(own.tables) == 0 {
		return nil, errTOMLForm
	}
	var edits []edit
	for _, table := range own.tables {
		before := bytes.TrimSuffix(bytes.TrimSuffix(text[:table.start], []byte("\n")), []byte("\r"))
		after := text[table.end:lineEnd(text, table.end)]
		switch {
		case bytes.HasSuffix(before, []byte("\n")):
			table.start = len(before)
		case len(bytes.TrimPrefix(before, byteOrderMark)) == 0 && len(bytes.TrimSpace(after)) == 0:
			table.end += len(after)
		}
		edits = append(edits, edit{span: table})
	}
	edited := apply(text, edits)
	if _, exists, err := ofTOML.entry(edited); err != nil || exists || !sameOthers(text, edited) {
		return nil, errTOMLForm
	}
	return edited, nil
}

// span is a part of a text.
type span struct{ start, end int }

type edit struct {
	span
	text string
}

// apply replaces spans of a text, which must not overlap.
func apply(text []byte, edits []edit) (edited []byte) {
	sort.Slice(edits, func(i, j int) bool { return edits[i].start < edits[j].start })
	done := 0
	for _, e := range edits {
		edited = append(append(edited, text[done:e.start]...), e.text...)
		done = e.end
	}
	return append(edited, text[done:]...)
}

// ownTables is where a TOML text has the relay.
type ownTables struct {
	tables        []span // its table and the ones in it, in whole lines
	command, args span   // key and value, without the end of the line
}

// findTOML finds the relay's tables in a text.
func findTOML(text []byte) (own ownTables, err error) {
	bare := bytes.TrimPrefix(text, byteOrderMark)
	mark := len(text) - len(bare)
	var p unstable.Parser
	p.Reset(bare)
	level := 0 // of the table now: 0 is another table, 1 the relay's, 2 one in it
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.KeyValue {
			at := span{mark + int(e.Raw.Offset), mark + int(e.Raw.Offset) + int(e.Raw.Length)}
			own.value(text, level, keyOf(e), at)
			continue
		}
		key := keyOf(e)
		if level = 0; len(key) < 2 || key[0] != tomlList || key[1] != serverName {
			continue
		}
		level = min(len(key)-1, 2)
		at := mark + int(e.Child().Raw.Offset)
		own.tables = append(own.tables, span{max(mark, bytes.LastIndexByte(text[:at], '\n')+1), lineEnd(text, at)})
	}
	return own, p.Error()
}

// value notes a value of the table at that level.
func (own *ownTables) value(text []byte, level int, key []string, at span) {
	if level == 0 {
		return
	}
	own.tables[len(own.tables)-1].end = lineEnd(text, at.end)
	if level == 1 && len(key) == 1 && key[0] == "command" {
		own.command = at
	}
	if level == 1 && len(key) == 1 && key[0] == "args" {
		own.args = at
	}
}

func keyOf(e *unstable.Node) (key []string) {
	for k := e.Key(); k.Next(); {
		key = append(key, string(k.Node().Data))
	}
	return key
}

// lineEnd is the offset after the line that contains offset at.
func lineEnd(text []byte, at int) int {
	if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}

// sameOthers reports whether two texts have the same values outside the relay's table.
func sameOthers(a, b []byte) bool {
	left, right := othersTOML(a), othersTOML(b)
	return left != "" && left == right
}

// othersTOML returns the values outside the relay's table in Go's notation, where NaN equals NaN; empty
// for a text that is not TOML.
func othersTOML(text []byte) string {
	all, err := parseTOML(text)
	if err != nil {
		return ""
	}
	if servers, ok := all[tomlList].(map[string]any); ok {
		delete(servers, serverName)
		if len(servers) == 0 {
			delete(all, tomlList)
		}
	}
	return fmt.Sprintf("%#v", all)
}

func parseTOML(text []byte) (all map[string]any, err error) {
	if len(text) > maxTOML {
		return nil, fmt.Errorf("it is larger than %d KiB", maxTOML>>10)
	}
	all = map[string]any{}
	return all, toml.Unmarshal(bytes.TrimPrefix(text, byteOrderMark), &all)
}

// tableOf is the relay's table. JSON strings and lists of strings are valid TOML.
func tableOf(c Command) string {
	return fmt.Sprintf("[%s.%s]\ncommand = %s\nargs = %s\n", tomlList, serverName, marshal(c.Path, "", ""), marshal(c.Args, "", ""))
}
