package hostconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Codex keeps its servers in TOML. Only the plain forms are edited, line by line: what
// `codex mcp add` and people write.
var (
	tomlTable     = regexp.MustCompile(`^\s*\[\s*mcp_servers\s*\.\s*["']?` + serverName + `["']?\s*\]\s*(#.*)?$`)
	tomlElse      = regexp.MustCompile(`(?m)^\s*["']?mcp_servers["']?\s*(=|\.)|^\s*\[\s*\[?\s*["']?mcp_servers["']?\s*\]|mcp_servers["']?\s*\.\s*["']?` + serverName)
	tomlCommand   = regexp.MustCompile(`^\s*command\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*')\s*(?:#.*)?$`)
	tomlArgs      = regexp.MustCompile(`^\s*args\s*=\s*\[[^\[\]#]*\]\s*(?:#.*)?$`)
	tomlManyLines = regexp.MustCompile(`(?s)"""(?:[^\\]|\\.)*?"""|'''.*?'''`)
	tomlKey       = regexp.MustCompile(`^\s*(command|args)\s*=`)
)

// editTOML sets the relay's command. A file without its table gets one at its end,
// where any table may stand.
func editTOML(text []byte, c Command) ([]byte, error) {
	if err := plainTOML(text); err != nil {
		return nil, err
	}
	newline := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		newline = "\r\n"
	}
	lines := strings.SplitAfter(string(text), "\n")
	first, end := tableLines(lines)
	if first >= 0 {
		if !strings.HasSuffix(lines[first], "\n") { // the file ends with the header
			lines[first] += newline
		}
		table, err := amendTable(lines[first+1:end], c, newline)
		return []byte(strings.Join(slices.Concat(lines[:first+1], table, lines[end:]), "")), err
	}
	if tomlElse.Match(text) {
		return nil, errors.New("it holds its servers in a form this program does not edit")
	}
	before := ""
	switch {
	case len(text) == 0:
	case bytes.HasSuffix(text, []byte("\n")):
		before = newline
	default:
		before = newline + newline
	}
	table := before + "[mcp_servers." + serverName + "]" + newline + tomlLine("command", c.Path, newline) + tomlLine("args", c.Args, newline)
	return append(slices.Clone(text), table...), nil
}

// tableLines is the relay's table: its header and the line after its end; first is -1
// where there is none.
func tableLines(lines []string) (first, end int) {
	for i, line := range lines {
		if !tomlTable.MatchString(strings.TrimSpace(line)) {
			continue
		}
		for end = i + 1; end < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[end]), "["); end++ {
		}
		return i, end
	}
	return -1, -1
}

// amendTable changes command, and args where the command is no relay's yet.
func amendTable(table []string, c Command, newline string) ([]string, error) {
	command, args := -1, -1
	for i, line := range table {
		switch line = strings.TrimSpace(line); {
		case tomlCommand.MatchString(line):
			command = i
		case tomlArgs.MatchString(line):
			args = i
		case tomlKey.MatchString(line):
			return nil, fmt.Errorf("its entry %q has a form this program does not edit", serverName)
		}
	}
	have, _ := commandOf(table)
	table = slices.Clone(table)
	var missing []string
	switch {
	case command < 0:
		missing = append(missing, tomlLine("command", c.Path, newline))
	case have != c.Path:
		table[command] = tomlLine("command", c.Path, newline)
	}
	switch {
	case args < 0:
		missing = append(missing, tomlLine("args", c.Args, newline))
	case !isRelay(have):
		table[args] = tomlLine("args", c.Args, newline)
	}
	return append(missing, table...), nil
}

// programTOML is only read from, so it may step over texts of several lines: whoever
// added the table by hand to a file that has some is to see that it counts.
func programTOML(text []byte) (string, bool) {
	if plainTOML(text) != nil {
		text = tomlManyLines.ReplaceAllLiteral(text, []byte(`""`))
	}
	if plainTOML(text) != nil {
		return "", false
	}
	lines := strings.SplitAfter(string(text), "\n")
	first, end := tableLines(lines)
	if first < 0 {
		return "", false
	}
	return commandOf(lines[first+1 : end])
}

// commandOf is what a table's command line says.
func commandOf(table []string) (string, bool) {
	for _, line := range table {
		match := tomlCommand.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			continue
		}
		value := match[1]
		if value[0] == '\'' {
			return value[1 : len(value)-1], true
		}
		var text string
		if json.Unmarshal([]byte(value), &text) != nil { // the escapes that both have
			return value, true
		}
		return text, true
	}
	return "", false
}

// tomlLine is a setting; JSON's strings and lists of them are TOML's, too.
func tomlLine(key string, value any, newline string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // strings always encode
	return key + " = " + strings.TrimSuffix(b.String(), "\n") + newline
}

// shellLine is a command for a person to paste.
func shellLine(c Command) string {
	words := []string{c.Path}
	words = append(words, c.Args...)
	for i, word := range words {
		if strings.ContainsAny(word, " ()&'") {
			words[i] = `"` + word + `"`
		}
	}
	return strings.Join(words, " ")
}
