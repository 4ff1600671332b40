package parameters

import (
	"reflect"
	"strings"
	"testing"

	"colabrelay/relay/notebook"
)

// make interop compares with papermill itself.
func TestValuesAreWrittenAsPython(t *testing.T) {
	for name, test := range map[string]struct{ json, want string }{
		"the order":        {`{"b": 1, "a": 2, "b": 3}`, "# Parameters\nb = 3\na = 2\n"},
		"numbers":          {`{"a": 1.0, "b": 1E+2, "c": -0.0, "d": 1e999}`, "# Parameters\na = 1.0\nb = 1E+2\nc = -0.0\nd = 1e999\n"},
		"words":            {`{"a": NaN, "b": Infinity, "c": [-Infinity, null, true, "NaN null"]}`, "# Parameters\na = float('nan')\nb = float('inf')\nc = [float('-inf'), None, True, \"NaN null\"]\n"},
		"strings":          {`{"a": "it's \"so\"", "b": "C:\\new\\\\", "c": "one\ntwo\tthree\r\u0000\u007f", "d": ""}`, "# Parameters\na = \"it's \\\"so\\\"\"\nb = \"C:\\\\new\\\\\\\\\"\nc = \"one\\ntwo\\tthree\\r\\u0000\\u007f\"\nd = \"\"\n"},
		"other characters": {`{"a": "é\u00e9\u2028😀\ud83d\ude00\ud800x\udc00\/\b\f"}`, "# Parameters\na = \"\\u00e9\\u00e9\\u2028\\U0001f600\\U0001f600\\ud800x\\udc00/\\b\\f\"\n"},
		"objects":          {"{\"a\": {}, \"b\": {\"k\": [1.5],\n \"\": {\"n\": null}, \"k\": 2} }", "# Parameters\na = {}\nb = {\"k\": [1.5],  \"\": {\"n\": None}, \"k\": 2}\n"},
	} {
		v, err := Parse(test.json)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := v.cell(v.Names()); got != test.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, test.want)
		}
	}
}

func TestWhatIsNoSetOfParametersIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`[1]`:                              "there is no JSON object",
		`null`:                             "there is no JSON object",
		`{"a": 1} x`:                       "after top-level value at character 10",
		`{"a": 1`:                          "unexpected end of JSON input at character 7",
		`{"a": 1NaN}`:                      "after object key:value pair at character 8",
		`{NaN: 1}`:                         "beginning of object key",
		`{"": 1}`:                          "a name is empty",
		"{\"a\": \"x\ny\"}":                "in string literal",
		`{"a": "\x41"}`:                    "in string escape code",
		`{"lambda": 1}`:                    `"lambda" is a keyword of Python`,
		`{"x = 1; import os #": 1}`:        "is not a Python name",
		`{"a": "` + many("x", 65536) + `"`: "65544 bytes, and at most 65536 are accepted",
		"{\"a\": \"\xff\"}":                "not UTF-8",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func many(text string, n int) string { return strings.Repeat(text, n) }

func TestFillReplacesOnlyTheValuesOfForms(t *testing.T) {
	v, err := Parse(`{"lr": 0.5, "name": "it's # new", "epochs": 7, "flag": true}`)
	if err != nil {
		t.Fatal(err)
	}
	source := "#@title Settings { run: \"auto\" }\r\n" +
		"lr = 0.1 #@param {type:\"number\"}\r\n" +
		"  name = \"a # b\"   # @param [\"a # b\", \"#@param\"] {allow-input: true}\n" +
		"epochs: int = 3  #@param {type:\"integer\"}\n" +
		"epochs = 3  # see @param\n" +
		"epochs == 3 #@param\n" +
		"epochs = '#@param'\n" +
		"flag = #@param {type:\"boolean\"}\n" +
		"other = 1 #@param\n" +
		"flag=False#@params\n" +
		"lr=0.1#@param"
	want := strings.NewReplacer("lr = 0.1 #", "lr = 0.5 #", "name = \"a # b\" ", "name = \"it's # new\" ", "int = 3", "int = 7", "flag = #", "flag = True#", "lr=0.1#", "lr=0.5#").Replace(source)
	if got := v.Fill(source); got != want {
		t.Errorf("%q, want\n%q", got, want)
	}
	none, _ := Parse("")
	if none.Fill(source) != source {
		t.Error("a source changed without parameters")
	}
}

// document returns a notebook with these cells.
func document(t *testing.T, cells ...notebook.NewCell) *notebook.Document {
	t.Helper()
	d := notebook.New()
	for _, cell := range cells {
		if _, err := d.Insert(-1, cell); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func code(source string, tags ...string) notebook.NewCell {
	return notebook.NewCell{Type: notebook.Code, Source: source, Tags: tags}
}

// sources returns the cells' sources, each with its tags.
func sources(d *notebook.Document) (all []string) {
	for i := range d.Len() {
		cell := d.Cell(i)
		all = append(all, strings.TrimSuffix(cell.Source+" "+strings.Join(cell.Tags, ","), " "))
	}
	return all
}

func TestInject(t *testing.T) {
	const injected = "# Parameters\na = 1\nb = \"x\"\n injected-parameters"
	for name, test := range map[string]struct {
		cells   []notebook.NewCell
		want    []string
		warning string
	}{
		"below the defaults": {[]notebook.NewCell{code("import os"), code("a = 0\nb: str = ''", "parameters"), code("a", "parameters")},
			[]string{"import os", "a = 0\nb: str = '' parameters", injected, "a parameters"}, ""},
		"in place of an earlier one": {[]notebook.NewCell{code("a, b = 0, 1", "x", "parameters"), code("print(a)"), code("# Parameters\na = 9\n", "injected-parameters")},
			[]string{"a, b = 0, 1 x,parameters", "print(a)", injected}, ""},
		"first": {[]notebook.NewCell{code("print(a)")}, []string{injected, "print(a)"}, `no cell has the tag "parameters"`},
		"unknown names": {[]notebook.NewCell{code("A = 0\n# b = 1\nif b == 1: pass\nf(b=1)", "parameters")},
			[]string{"A = 0\n# b = 1\nif b == 1: pass\nf(b=1) parameters", injected}, "does not assign a, b: check"},
		"all in forms": {[]notebook.NewCell{code("a = 0 #@param\nb = 'y' # @param {type:\"string\"}")},
			[]string{"a = 0 #@param\nb = 'y' # @param {type:\"string\"}"}, ""},
		"some in forms": {[]notebook.NewCell{code("b = 1", "parameters"), code("a = 0 #@param")},
			[]string{"b = 1 parameters", "# Parameters\nb = \"x\"\n injected-parameters", "a = 0 #@param"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := Parse(`{"a": 1, "b": "x"}`)
			if err != nil {
				t.Fatal(err)
			}
			d := document(t, test.cells...)
			warnings, err := v.Inject(d)
			if err != nil || !reflect.DeepEqual(sources(d), test.want) {
				t.Errorf("%v: %q, want %q", err, sources(d), test.want)
			}
			if got := strings.Join(warnings, " "); (test.warning == "") != (got == "") || !strings.Contains(got, test.warning) {
				t.Errorf("warned %q, want %q", got, test.warning)
			}
			digest := d.Digest()
			if _, err := v.Inject(d); err != nil || d.Digest() != digest {
				t.Errorf("%v: a second time changed the notebook: %q", err, sources(d))
			}
		})
	}
}
