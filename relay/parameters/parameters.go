// Package parameters sets the parameters of a notebook by papermill's rules: it turns JSON into
// Python, injects the cell of assignments, and fills Colab's #@param lines in what is sent. It
// runs nothing and reads no files.
//
// Start reading at Parse.
package parameters

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/lazy"
)

// MaxBytes bounds the JSON text of the parameters of one run.
const MaxBytes = 64 << 10

// Values are parameters in the order of their JSON text, with their values as Python
// expressions.
type Values struct {
	names       []string
	expressions map[string]string
}

// Parse reads parameters from a JSON object. As for papermill, NaN and Infinity are values, and
// the last of several values of a name counts. An empty text means no parameters. The error
// says what is wrong and where; it is for the person or the model that wrote the text.
func Parse(text string) (*Values, error) {
	v := &Values{expressions: map[string]string{}}
	switch {
	case strings.TrimSpace(text) == "":
		return v, nil
	case len(text) > MaxBytes:
		return nil, fmt.Errorf("parameters: %d bytes, and at most %d are accepted: put large values into a file and pass its path", len(text), MaxBytes)
	case !utf8.ValidString(text):
		return nil, fmt.Errorf("parameters: the text is not UTF-8")
	}
	if err := v.read(text); err != nil {
		return nil, fmt.Errorf(`parameters: %w: give a JSON object such as {"epochs": 3, "name": "test"}`, err)
	}
	return v, nil
}

// read reads a JSON object. encoding/json does not know NaN and Infinity, so it reads the text with
// strings in their places.
func (v *Values) read(text string) error {
	standard := token().ReplaceAllStringFunc(text, func(t string) string {
		if strings.HasSuffix(t, "NaN") || strings.HasSuffix(t, "Infinity") {
			return `"` + strings.Repeat(" ", len(t)-2) + `"`
		}
		return t
	})
	var object map[string]json.RawMessage
	err := json.Unmarshal([]byte(standard), &object)
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w at character %d", err, utf8.RuneCountInString(text[:min(wrong.Offset, int64(len(text)))]))
	}
	if err != nil || object == nil {
		return errors.New("there is no JSON object")
	}
	d := json.NewDecoder(strings.NewReader(standard))
	_, _ = d.Token() // the text is valid
	for d.More() {
		var value json.RawMessage
		name, _ := d.Token()
		_ = d.Decode(&value)
		if err := v.set(name.(string), text[d.InputOffset()-int64(len(value)):d.InputOffset()]); err != nil {
			return err
		}
	}
	return nil
}

func (v *Values) set(name, value string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if !slices.Contains(v.names, name) {
		v.names = append(v.names, name)
	}
	v.expressions[name] = python(value)
	return nil
}

// token matches what JSON and Python write in different ways: strings and words.
var token = lazy.Regexp(`(?s)"(?:[^"\\]|\\.)*"|-?Infinity|NaN|null|true|false`)

var words = map[string]string{
	"null": "None", "true": "True", "false": "False",
	"NaN": "float('nan')", "Infinity": "float('inf')", "-Infinity": "float('-inf')",
}

// python returns a value, which is valid JSON, as a Python expression in one line.
func python(value string) string {
	value = strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(value) // they are in no string
	return token().ReplaceAllStringFunc(value, func(t string) string {
		if t[0] == '"' {
			return escape().ReplaceAllStringFunc(t, pythonEscape)
		}
		return words[t]
	})
}

// escape matches an escape in a string, both halves of a pair as one, and a character beyond ASCII.
var escape = lazy.Regexp(`\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\.|[^ -~]`)

// pythonEscape returns an escape as Python reads it. Most are JSON's.
func pythonEscape(e string) string {
	switch {
	case e == `\/`:
		return "/"
	case e[0] == '\\' && len(e) == 2:
		return e
	}
	var text string
	_ = json.Unmarshal([]byte(`"`+e+`"`), &text) // the text is valid
	return strings.Trim(strconv.QuoteToASCII(text), `"`)
}

// Names returns the names in the order of the JSON text.
func (v *Values) Names() []string { return slices.Clone(v.names) }

// Cell returns the source of the injected cell for these names.
func (v *Values) cell(names []string) string {
	var b strings.Builder
	b.WriteString("# Parameters\n")
	for _, name := range names {
		fmt.Fprintf(&b, "%s = %s\n", name, v.expressions[name])
	}
	return b.String()
}

// keywords are the names that Python reserves.
var keywords = strings.Fields("False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield")

// identifier matches what Python accepts as a name.
var identifier = lazy.Regexp(`^[\pL\p{Nl}_][\pL\p{Nl}\p{Nd}\p{Mn}\p{Mc}\p{Pc}]*$`)

// checkName refuses what cannot be assigned: any other text would run as code.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case slices.Contains(keywords, name):
		return fmt.Errorf("%q is a keyword of Python and cannot be assigned", name)
	case !identifier().MatchString(name):
		return fmt.Errorf("%.60q is not a Python name", name)
	}
	return nil
}
