// Package parameters sets the parameters of a notebook by papermill's rules: it turns JSON into
// Python, injects the cell of assignments, and fills Colab's #@param lines in what is sent. It
// runs nothing and reads no files.
//
// Start reading at Parse.
package parameters

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/notebook"
	"colabrelay/shared/lazy"
)

// Tags of papermill's.
const (
	defaultsTag = "parameters"
	injectedTag = "injected-parameters"
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
	if err := v.read([]byte(text)); err != nil {
		return nil, fmt.Errorf(`parameters: %w: give a JSON object such as {"epochs": 3, "name": "test"}`, err)
	}
	return v, nil
}

// read reads a JSON object.
func (v *Values) read(text []byte) (err error) {
	var object map[string]json.RawMessage
	err = json.Unmarshal(notebook.Standard(text), &object)
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w at character %d", err, utf8.RuneCount(text[:min(wrong.Offset, int64(len(text)))]))
	}
	if err != nil || object == nil {
		return errors.New("there is no JSON object")
	}
	notebook.Members(bytes.TrimSpace(text), func(name string, value []byte) {
		if err == nil {
			err = checkName(name)
		}
		if !slices.Contains(v.names, name) {
			v.names = append(v.names, name)
		}
		v.expressions[name] = python(string(value))
	})
	return err
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

// cell returns the source of the injected cell for these names.
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

// Inject writes the cell that assigns the parameters: it replaces an earlier injected cell,
// otherwise it follows the cell tagged "parameters", otherwise it goes first. Parameters that
// #@param lines have are not in it: Fill sets them. It returns warnings for the person or model
// that gave the parameters. A second call with the same values changes nothing.
func (v *Values) Inject(d *notebook.Document) (warnings []string, err error) {
	names := v.withoutForms(d)
	if len(names) == 0 {
		return nil, nil
	}
	source, defaults := v.cell(names), tagged(d, defaultsTag)
	if defaults >= 0 {
		warnings = unknown(names, d.Cell(defaults).Source)
	}
	if at := tagged(d, injectedTag); at >= 0 {
		if cell := d.Cell(at); cell.Source == source && cell.Type == notebook.Code {
			return warnings, nil
		}
		return warnings, d.SetSource(at, source, notebook.Code)
	}
	if defaults < 0 {
		warnings = []string{`no cell has the tag "parameters", so the parameters are assigned in a new first cell: a later cell that assigns the same names replaces the values`}
	}
	_, err = d.Insert(defaults+1, notebook.NewCell{Type: notebook.Code, Source: source, Tags: []string{injectedTag}})
	return warnings, err
}

// withoutForms returns the names that no #@param line of the notebook has.
func (v *Values) withoutForms(d *notebook.Document) []string {
	forms := map[string]bool{}
	for i := range d.Len() {
		for _, p := range d.Cell(i).Params {
			forms[p.Name] = true
		}
	}
	return slices.DeleteFunc(v.Names(), func(name string) bool { return forms[name] })
}

// tagged returns the first cell with a tag, or -1.
func tagged(d *notebook.Document, tag string) int {
	for i := range d.Len() {
		if slices.Contains(d.Cell(i).Tags, tag) {
			return i
		}
	}
	return -1
}

// unknown warns of the names that the cell of the defaults does not assign.
func unknown(names []string, defaults string) []string {
	assigned := func(name string) bool {
		line := regexp.MustCompile(`(?m)^(?:[^#=(\n]*[ \t,])?` + name + `[ \t]*(?:[,:][^#=(\n]*)?=(?:[^=]|$)`)
		return line.MatchString(defaults)
	}
	missing := slices.DeleteFunc(slices.Clone(names), assigned)
	if len(missing) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(`the cell tagged "parameters" does not assign %s: check the spelling; the notebook may not use what you set`, strings.Join(missing, ", "))}
}

// Fill returns the source of a code cell with the parameters as values of its #@param lines. The
// rest of each line stays.
func (v *Values) Fill(source string) string {
	if len(v.names) == 0 || !strings.Contains(source, "@param") {
		return source
	}
	var b strings.Builder
	for line := range strings.Lines(source) {
		name, from, to := notebook.ParamOn(line)
		if expression, given := v.expressions[name]; given {
			line = line[:from] + expression + line[to:]
		}
		b.WriteString(line)
	}
	return b.String()
}
