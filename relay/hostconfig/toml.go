package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlList is the table that contains the tables of Codex's servers.
const tomlList = "mcp_servers"

// maxTOML bounds a TOML text, in bytes. The parser calls itself at each level of a list.
const maxTOML = 512 << 10

// ofTOML is any host whose file is TOML.
var ofTOML Host

// errTOMLForm: the entry is not a table of its own.
var errTOMLForm = fmt.Errorf("its entry %q is not written as a table [%s.%s]", serverName, tomlList, serverName)

// editTOML appends the relay's table to the end of a file, where any table may be, or changes what
// differs from c in the table that exists. As in JSON, args stay if it already starts a relay and
// c does not amend them.
func editTOML(text []byte, c Command) ([]byte, error) {
	have, exists, err := ofTOML.entry(text)
	if err != nil {
		return nil, err
	}
	own, _ := readTOML(text)
	newline := newlineOf(text)
	if !exists {
		if own.closed {
			return nil, errors.New("a table cannot be added after the form in which it lists the servers")
		}
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			text = append(bytes.Clone(text), newline...)
		}
		before := ""
		if len(text) > 0 {
			before = newline
		}
		return slices.Concat(text, []byte(before), []byte(strings.ReplaceAll(tableOf(c), "\n", newline))), nil
	}
	command, args := "command = "+string(marshal(c.Path, "", "")), c.argsAfter(have)
	var edits []edit
	if have.Command != c.Path {
		edits = append(edits, edit{own.command, command})
	}
	if list := "args = " + string(marshal(args, "", "")); own.args.end == 0 {
		edits = append(edits[:0], edit{own.command, command + newline + list})
	} else if !slices.Equal(have.Args, args) {
		edits = append(edits, edit{own.args, list})
	}
	edited := apply(text, edits)
	if now, _, err := ofTOML.entry(edited); own.command.end == 0 || err != nil || now.Command != c.Path || !slices.Equal(now.Args, args) {
		return nil, errTOMLForm
	}
	return edited, nil
}

// removeTOML deletes the relay's tables, from each header to the last line of its values,
// and an empty line before them, or after them at the beginning of the text.
func removeTOML(text []byte) ([]byte, error) {
	own, err := readTOML(text)
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
	if _, exists, err := ofTOML.entry(edited); err != nil || exists {
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

// tomlFile is what a TOML text says, and where it has the relay.
type tomlFile struct {
	all           map[string]any // strings, switches, lists and tables as Go has them, all else as it is written
	closed        bool           // the list of servers is no table that a header may add to
	tables        []span         // the relay's table and the ones in it, in whole lines
	command, args span           // key and value in the relay's table, without the end of the line
}

// readTOML reads a text. It does not notice that something is there twice.
func readTOML(text []byte) (f tomlFile, err error) {
	f.all = map[string]any{}
	if len(text) > maxTOML {
		return f, fmt.Errorf("it is larger than %d KiB", maxTOML>>10)
	}
	bare := bytes.TrimPrefix(text, byteOrderMark)
	mark := len(text) - len(bare)
	var p unstable.Parser
	p.Reset(bare)
	var table []string
	own := func(path []string) bool { return len(path) > 1 && path[0] == tomlList && path[1] == serverName }
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.KeyValue {
			table = keyOf(e)
			f.closed = f.closed || len(table) == 1 && table[0] == tomlList && e.Kind == unstable.ArrayTable
			if at(f.all, table...) == nil {
				put(f.all, table, map[string]any{})
			}
			if at := mark + int(e.Child().Raw.Offset); own(table) {
				f.tables = append(f.tables, span{max(mark, bytes.LastIndexByte(text[:at], '\n')+1), lineEnd(text, at)})
			}
			continue
		}
		key := slices.Concat(table, keyOf(e))
		put(f.all, key, valueOf(e.Value()))
		f.closed = f.closed || len(key) == 1 && key[0] == tomlList
		if !own(table) {
			continue
		}
		at := span{mark + int(e.Raw.Offset), mark + int(e.Raw.Offset+e.Raw.Length)}
		f.tables[len(f.tables)-1].end = lineEnd(text, at.end)
		switch {
		case len(key) == 3 && key[2] == "command":
			f.command = at
		case len(key) == 3 && key[2] == "args":
			f.args = at
		}
	}
	return f, p.Error()
}

// put puts a value at a path, with the tables that are missing.
func put(table map[string]any, path []string, value any) {
	last := len(path) - 1
	for _, key := range path[:last] {
		if _, ok := table[key].(map[string]any); !ok {
			table[key] = map[string]any{}
		}
		table = table[key].(map[string]any)
	}
	table[path[last]] = value
}

func valueOf(n *unstable.Node) any {
	list, table := []any{}, map[string]any{}
	for c := n.Children(); c.Next(); {
		if each := c.Node(); n.Kind == unstable.InlineTable {
			put(table, keyOf(each), valueOf(each.Value()))
		} else {
			list = append(list, valueOf(each))
		}
	}
	switch n.Kind {
	case unstable.Bool:
		return string(n.Data) == "true"
	case unstable.Array:
		return list
	case unstable.InlineTable:
		return table
	}
	return string(n.Data)
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

// tableOf is the relay's table. JSON strings and lists of strings are valid TOML.
func tableOf(c Command) string {
	return fmt.Sprintf("[%s.%s]\ncommand = %s\nargs = %s\n", tomlList, serverName, marshal(c.Path, "", ""), marshal(c.Args, "", ""))
}
