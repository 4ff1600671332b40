package parameters

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"colabrelay/shared/lazy"
)

// Bounds of a value. Python refuses source that exceeds them by far.
const (
	maxDepth  = 100
	maxDigits = 4300 // of a whole number; Python's own limit
)

// parser reads JSON as Python's json module does and writes it as Python. encoding/json knows
// neither NaN nor halves of surrogate pairs, and it loses the order of keys.
type parser struct {
	text string
	at   int
}

// fail returns an error that names the place, counted in characters from 1.
func (p *parser) fail(what string) error {
	return fmt.Errorf("%s at character %d", what, utf8.RuneCountInString(p.text[:p.at])+1)
}

// next skips white space and returns the next byte, 0 at the end.
func (p *parser) next() byte {
	for ; p.at < len(p.text); p.at++ {
		if !strings.ContainsRune(" \t\r\n", rune(p.text[p.at])) {
			return p.text[p.at]
		}
	}
	return 0
}

// take skips white space and b, if b is next.
func (p *parser) take(b byte) bool {
	if p.next() != b || p.at == len(p.text) {
		return false
	}
	p.at++
	return true
}

// end refuses anything after the value.
func (p *parser) end() error {
	if p.next(); p.at < len(p.text) {
		return p.fail("there is more after the object")
	}
	return nil
}

// value returns the next value as a Python expression.
func (p *parser) value(depth int) (string, error) {
	if depth > maxDepth {
		return "", p.fail(fmt.Sprintf("a value is nested more than %d deep", maxDepth))
	}
	switch c := p.next(); {
	case c == '{':
		return p.dict(depth)
	case c == '[':
		return p.list(depth)
	case c == '"':
		units, err := p.string()
		return pythonString(units), err
	case c == '-' || c >= '0' && c <= '9':
		if !strings.HasPrefix(p.text[p.at:], "-Infinity") {
			return p.number()
		}
	}
	for word, expression := range words {
		if strings.HasPrefix(p.text[p.at:], word) {
			p.at += len(word)
			return expression, nil
		}
	}
	return "", p.fail("there is no JSON value")
}

var words = map[string]string{
	"null": "None", "true": "True", "false": "False",
	"NaN": pythonFloat(math.NaN()), "Infinity": pythonFloat(math.Inf(1)), "-Infinity": pythonFloat(math.Inf(-1)),
}

// members reads an object and calls visit with the name and the expression of each member.
func (p *parser) members(depth int, visit func(name []rune, expression string) error) error {
	if !p.take('{') {
		return p.fail("there is no JSON object")
	}
	if p.take('}') {
		return nil
	}
	for {
		if p.next() != '"' {
			return p.fail("there is no name in double quotes")
		}
		name, err := p.string()
		if err != nil {
			return err
		}
		if !p.take(':') {
			return p.fail("there is no colon")
		}
		expression, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		if err := visit(name, expression); err != nil {
			return err
		}
		if p.take('}') {
			return nil
		}
		if !p.take(',') {
			return p.fail("there is neither a comma nor the end of the object")
		}
	}
}

// dict returns an object as a dict. As in Python, the last of several values of a key counts,
// in the place of the first.
func (p *parser) dict(depth int) (string, error) {
	place, items := map[string]int{}, []string(nil)
	err := p.members(depth, func(name []rune, expression string) error {
		key := pythonString(name)
		item := key + ": " + expression
		if i, again := place[key]; again {
			items[i] = item
			return nil
		}
		place[key] = len(items)
		items = append(items, item)
		return nil
	})
	return "{" + strings.Join(items, ", ") + "}", err
}

func (p *parser) list(depth int) (string, error) {
	p.take('[')
	if p.take(']') {
		return "[]", nil
	}
	var items []string
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return "", err
		}
		items = append(items, item)
		if p.take(']') {
			return "[" + strings.Join(items, ", ") + "]", nil
		}
		if !p.take(',') {
			return "", p.fail("there is neither a comma nor the end of the list")
		}
	}
}

var number = lazy.Regexp(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?`)

// number returns a number as Python prints it after it read it: a whole number of any size as
// it is, any other as a float.
func (p *parser) number() (string, error) {
	found := number().FindString(p.text[p.at:])
	switch {
	case found == "":
		return "", p.fail("there is no JSON value")
	case !strings.ContainsAny(found, ".eE") && len(strings.TrimPrefix(found, "-")) > maxDigits:
		return "", p.fail(fmt.Sprintf("a number has more than the %d digits that Python reads", maxDigits))
	}
	p.at += len(found)
	switch {
	case found == "-0":
		return "0", nil
	case strings.ContainsAny(found, ".eE"):
		f, _ := strconv.ParseFloat(found, 64) // infinite if it is out of range, as in Python
		return pythonFloat(f), nil
	}
	return found, nil
}

// string returns the characters of a string.
func (p *parser) string() ([]rune, error) {
	var units []rune
	for p.at++; p.at < len(p.text); {
		r, size := utf8.DecodeRuneInString(p.text[p.at:])
		switch {
		case r == '"':
			p.at++
			return units, nil
		case r < ' ':
			return nil, p.fail("a string has a control character: write a line break as \\n")
		case r == '\\':
			unit, err := p.escape()
			if err != nil {
				return nil, err
			}
			units = appendUnit(units, unit)
			continue
		}
		p.at += size
		units = append(units, r)
	}
	return nil, p.fail("a string has no end")
}

// appendUnit adds what an escape names, and makes one character of a surrogate pair.
func appendUnit(units []rune, unit rune) []rune {
	if n := len(units); n > 0 && utf16.IsSurrogate(unit) {
		if pair := utf16.DecodeRune(units[n-1], unit); pair != utf8.RuneError {
			return append(units[:n-1], pair)
		}
	}
	return append(units, unit)
}

var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads an escape sequence.
func (p *parser) escape() (rune, error) {
	rest := p.text[p.at:]
	if len(rest) >= 6 && rest[1] == 'u' {
		if unit, err := strconv.ParseUint(rest[2:6], 16, 16); err == nil {
			p.at += 6
			return rune(unit), nil
		}
	}
	if len(rest) >= 2 {
		if unit, known := escapes[rest[1]]; known {
			p.at += 2
			return unit, nil
		}
	}
	return 0, p.fail(`a string has an unknown escape: write a backslash as \\`)
}
