package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// editTOML appends the relay's table to the end of a file, where any table may be. It
// does not change a table that exists.
func editTOML(text []byte, c Command) ([]byte, error) {
	have, exists, err := entryTOML(text)
	switch {
	case err != nil:
		return nil, err
	case exists && have.Command == c.Path:
		return text, nil
	case exists:
		return nil, fmt.Errorf("it already has a table [mcp_servers.%s], which starts %q", serverName, have.Command)
	}
	newline, before := newlineOf(text), ""
	if len(text) > 0 {
		before = newline
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		before += newline
	}
	edited := slices.Concat(text, []byte(before), []byte(strings.ReplaceAll(tableOf(c), "\n", newline)))
	if have, _, err := entryTOML(edited); err != nil || have.Command != c.Path {
		return nil, errors.New("a table cannot be added after the form in which it lists the servers")
	}
	return edited, nil
}

// entryTOML returns the relay's entry.
func entryTOML(text []byte) (have entry, exists bool, err error) {
	var config struct {
		Servers map[string]entry `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal(bytes.TrimPrefix(text, byteOrderMark), &config); err != nil {
		return entry{}, false, err
	}
	have, exists = config.Servers[serverName]
	return have, exists, nil
}

// tableOf is the relay's table. JSON strings and lists of strings are valid TOML.
func tableOf(c Command) string {
	return fmt.Sprintf("[mcp_servers.%s]\ncommand = %s\nargs = %s\n", serverName, marshal(c.Path, "", ""), marshal(c.Args, "", ""))
}
