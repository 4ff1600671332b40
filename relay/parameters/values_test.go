package parameters

import (
	"strings"
	"testing"
)

// The expected cells are what papermill 2.7.0 injects; make interop compares with papermill
// itself.
func TestValuesAreWrittenAsPapermillWritesThem(t *testing.T) {
	for name, test := range map[string]struct{ json, want string }{
		"nothing":            {``, "# Parameters\n"},
		"an empty object":    {` { } `, "# Parameters\n"},
		"the order":          {`{"b": 1, "a": 2, "b": 3}`, "# Parameters\nb = 3\na = 2\n"},
		"words":              {`{"a": null, "b": true, "c": false}`, "# Parameters\na = None\nb = True\nc = False\n"},
		"whole numbers":      {`{"a": -0, "b": -17, "c": 123456789012345678901234567890}`, "# Parameters\na = 0\nb = -17\nc = 123456789012345678901234567890\n"},
		"floats":             {`{"a": 1.0, "b": 1e5, "c": 0.0001, "d": 0.00001, "e": 1e15, "f": 1e16, "g": -0.0, "h": 3.14159265358979312, "i": 5e-324, "j": 1E+2}`, "# Parameters\na = 1.0\nb = 100000.0\nc = 0.0001\nd = 1e-05\ne = 1000000000000000.0\nf = 1e+16\ng = -0.0\nh = 3.141592653589793\ni = 5e-324\nj = 100.0\n"},
		"no numbers":         {`{"a": NaN, "b": Infinity, "c": -Infinity, "d": 1e999, "e": -1e999}`, "# Parameters\na = float('nan')\nb = float('inf')\nc = float('-inf')\nd = float('inf')\ne = float('-inf')\n"},
		"strings":            {`{"a": "it's \"so\"", "b": "C:\\new", "c": "one\ntwo\tthree\r\u0000\u007f", "d": ""}`, "# Parameters\na = \"it's \\\"so\\\"\"\nb = \"C:\\\\new\"\nc = \"one\\ntwo\\tthree\\r\\x00\\x7f\"\nd = \"\"\n"},
		"other characters":   {`{"a": "é\u00e9\u2028😀\ud83d\ude00\ud800x\udc00\/\b\f"}`, "# Parameters\na = \"\\xe9\\xe9\\u2028\\U0001f600\\U0001f600\\ud800x\\udc00/\\x08\\x0c\"\n"},
		"lists":              {`{"a": [], "b": [1, "x", [true, null], NaN]}`, "# Parameters\na = []\nb = [1, \"x\", [True, None], float('nan')]\n"},
		"objects":            {`{"a": {}, "b": {"k \"1\"": [1.5], "": {"n": null}, "k \"1\"": 2}}`, "# Parameters\na = {}\nb = {\"k \\\"1\\\"\": 2, \"\": {\"n\": None}}\n"},
		"names of all kinds": {`{"_": 1, "match": 2, "größe": 3, "x_1": 4}`, "# Parameters\n_ = 1\nmatch = 2\ngröße = 3\nx_1 = 4\n"},
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
	deep := strings.Repeat("[", 101) + strings.Repeat("]", 101)
	for text, want := range map[string]string{
		`[1]`:                              "there is no JSON object at character 1",
		`{"a": 1} x`:                       "there is more after the object at character 10",
		`{"a": 1`:                          "neither a comma nor the end of the object at character 8",
		`{"a": 1,}`:                        "there is no name in double quotes at character 9",
		`{'a': 1}`:                         "there is no name in double quotes at character 2",
		`{"ü" 1}`:                          "there is no colon at character 6",
		`{"a": }`:                          "there is no JSON value at character 7",
		`{"a": -}`:                         "there is no JSON value at character 7",
		`{"a": 01}`:                        "neither a comma nor the end of the object at character 8",
		`{"a": [1 2]}`:                     "neither a comma nor the end of the list at character 10",
		`{"a": nul}`:                       "there is no JSON value at character 7",
		`{"a": "x}`:                        "a string has no end at character 10",
		"{\"a\": \"x\ny\"}":                "control character",
		`{"a": "\x41"}`:                    "unknown escape",
		`{"a": "\u12"}`:                    "unknown escape",
		`{"a": "\`:                         "unknown escape",
		`{"lambda": 1}`:                    `"lambda" is a keyword of Python`,
		`{"": 1}`:                          "a name is empty",
		`{"a b": 1}`:                       `"a b" is not a Python name`,
		`{"1a": 1}`:                        `"1a" is not a Python name`,
		`{"x = 1; import os #": 1}`:        "is not a Python name",
		`{"a\ud800": 1}`:                   "is not a Python name",
		`{"a": ` + deep + `}`:              "nested more than 100 deep",
		`{"a": ` + many("9", 4301) + `}`:   "4300 digits",
		`{"a": "` + many("x", 65536) + `"`: "65544 bytes, and at most 65536 are accepted",
		"{\"a\": \"\xff\"}":                "not UTF-8",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{`{"a": ` + deep[1:200] + `]}`, `{"a": -` + many("9", 4300) + `}`} {
		if _, err := Parse(text); err != nil {
			t.Errorf("%.20q: %v", text, err)
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

// No name and no value becomes anything but an assignment of a literal.
func FuzzParse(f *testing.F) {
	f.Add(`{"a": [1, -2.5e3, "x\"\\\u2028"], "b": {"k": null}}`)
	f.Add(`{"a": "\ud83d\ude00", "a": NaN}`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Parse(text)
		if err != nil {
			return
		}
		cell := v.cell(v.Names())
		if got := strings.Count(cell, "\n"); got != 1+len(v.Names()) {
			t.Errorf("%q has %d lines", cell, got)
		}
		if strings.ContainsFunc(strings.ReplaceAll(cell, "\n", ""), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q has control characters", cell)
		}
	})
}

// Filling the #@param lines of any source changes no other line and no comment, and a second
// time nothing.
func FuzzFill(f *testing.F) {
	const given = `{"lr": 0.5, "name": "it's # new\n", "größe": [1], "flag": null}`
	f.Add("lr = 0.1 #@param {type:\"number\"}\nname = \"a # b\" # @param\nx = 1\n")
	f.Add("lr: float = 0.1#@param\r\ngröße = '\\'#' #@param\n  flag = #@param")
	f.Add("lr == 1 #@param\nlr = 'never ends #@param\nlr = '''#@param''' #@params\nlr = 1 # @param x")
	f.Add("flag\t=\t\xff#@param\x00")
	v, err := Parse(given)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, source string) {
		filled := v.Fill(source)
		if v.Fill(filled) != filled {
			t.Fatalf("a second time makes %q of %q", v.Fill(filled), filled)
		}
		before, after := strings.SplitAfter(source, "\n"), strings.SplitAfter(filled, "\n")
		if len(before) != len(after) {
			t.Fatalf("%d lines became %d: %q", len(before), len(after), filled)
		}
		for i, line := range before {
			if line == after[i] {
				continue
			}
			if _, value, _ := strings.Cut(line, "="); strings.HasPrefix(value, "=") {
				t.Errorf("the comparison %q became %q", line, after[i])
			}
			name, rest, _ := strings.Cut(after[i], "=")
			name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
			expression, ok := v.expressions[strings.TrimSpace(name)]
			comment, found := strings.CutPrefix(strings.TrimLeft(rest, " \t"), expression)
			if !ok || !found || !strings.HasPrefix(strings.TrimLeft(comment, " \t"), "#") || !strings.HasSuffix(line, comment) || !strings.Contains(comment, "@param") {
				t.Errorf("%q became %q", line, after[i])
			}
		}
	})
}
