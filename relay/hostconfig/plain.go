package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const tomlName = `(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')`

// The forms of a line outside a list; a pair's value follows its match.
var (
	tomlPath   = tomlName + `(?:\s*\.\s*` + tomlName + `)*`
	tomlHeader = regexp.MustCompile(`^(?:\[\s*` + tomlPath + `\s*\]|\[\[\s*` + tomlPath + `\s*\]\])\s*(?:#.*)?$`)
	tomlPair   = regexp.MustCompile(`^` + tomlPath + `\s*=\s*`)
)

// plainTOML refuses what can't be edited line by line: texts of several lines, whose
// lines look like tables and settings, and whatever is no TOML at all.
func plainTOML(text []byte) error {
	text = bytes.TrimPrefix(text, byteOrderMark)
	open := "" // the closing brackets still wanted, the next one first
	began, number := 0, 0
	for raw := range bytes.Lines(text) {
		number++
		if open == "" {
			began = number
		}
		var err error
		if open, err = plainLine(strings.TrimSpace(string(raw)), open); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if open != "" {
		return fmt.Errorf("line %d: %q is missing", began, open)
	}
	return nil
}

// plainLine checks one line and gives the brackets that are open after it.
func plainLine(line, open string) (string, error) {
	pair := tomlPair.FindString(line)
	switch {
	case line == "" || line[0] == '#':
		return open, nil
	case open != "" && (line[0] == '[' || pair != ""):
		return "", errors.New("this program does not edit lists of that form")
	case open != "":
		return plainValue(line, open)
	case tomlHeader.MatchString(line):
		return "", nil
	case pair == "" || len(pair) == len(line) || line[len(pair)] == '#':
		return "", errors.New("it is neither a table's header nor a setting")
	}
	return plainValue(line[len(pair):], "")
}

// plainValue goes through a value, or a line of one. Only lists may go on after it.
func plainValue(value, open string) (string, error) {
	for i := 0; i < len(value); i++ {
		switch c := value[i]; c {
		case '#':
			value = value[:i]
		case '"', '\'':
			length, err := textLength(value[i:])
			if err != nil {
				return "", err
			}
			i += length - 1
		case '[':
			open = "]" + open
		case '{':
			open = "}" + open
		case ']', '}':
			if open == "" || open[0] != c {
				return "", fmt.Errorf("%q closes nothing", c)
			}
			open = open[1:]
		}
	}
	if strings.Contains(open, "}") {
		return "", errors.New(`"}" is missing`)
	}
	return open, nil
}

// textLength is how many bytes the quoted text takes that value begins with.
func textLength(value string) (int, error) {
	quote := value[0]
	if strings.HasPrefix(value, strings.Repeat(string(quote), 3)) {
		return 0, errors.New("a text of several lines begins here, and such are not edited")
	}
	for i := 1; i < len(value); i++ {
		switch {
		case value[i] == quote:
			return i + 1, nil
		case value[i] == '\\' && quote == '"':
			i++
		}
	}
	return 0, fmt.Errorf("a text in %c has no end", quote)
}
