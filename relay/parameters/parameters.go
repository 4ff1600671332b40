// Package parameters sets the parameters of a notebook by papermill's rules: it turns JSON into
// Python, injects the cell of assignments, and fills Colab's #@param lines in what is sent. It
// runs nothing and reads no files.
//
// Start reading at Parse.
package parameters

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
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
	p := &parser{text: text}
	err := p.members(0, func(units []rune, expression string) error {
		name := string(units)
		if err := checkName(name); err != nil {
			return err
		}
		if !slices.Contains(v.names, name) {
			v.names = append(v.names, name)
		}
		v.expressions[name] = expression
		return nil
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, fmt.Errorf(`parameters: %w: give a JSON object such as {"epochs": 3, "name": "test"}`, err)
	}
	return v, nil
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

// checkName refuses what cannot be assigned: any other text would run as code.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case slices.Contains(keywords, name):
		return fmt.Errorf("%q is a keyword of Python and cannot be assigned", name)
	case !isIdentifier(name):
		return fmt.Errorf("%.60q is not a Python name", name)
	}
	return nil
}

// isIdentifier reports whether Python accepts text as a name.
func isIdentifier(text string) bool {
	for i, r := range text {
		first := r == '_' || unicode.In(r, unicode.L, unicode.Nl)
		if !first && (i == 0 || !unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc, unicode.Pc)) {
			return false
		}
	}
	return text != ""
}
