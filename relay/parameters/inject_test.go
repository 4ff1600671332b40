package parameters

import (
	"reflect"
	"strings"
	"testing"

	"colabrelay/relay/notebook"
)

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
