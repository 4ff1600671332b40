package parameters

import (
	"encoding/json"
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
		json    string
		want    []string
		warning string
	}{
		"below the defaults": {[]notebook.NewCell{code("import os"), code("a = 0\nb: str = ''", "parameters"), code("a", "parameters")}, "",
			[]string{"import os", "a = 0\nb: str = '' parameters", injected, "a parameters"}, ""},
		"in place of an earlier one": {[]notebook.NewCell{code("a, b = 0, 1", "x", "parameters"), code("print(a)"), code("# Parameters\na = 9\n", "injected-parameters")}, "",
			[]string{"a, b = 0, 1 x,parameters", "print(a)", injected}, ""},
		"first":                  {[]notebook.NewCell{code("print(a)")}, "", []string{injected, "print(a)"}, `no cell has the tag "parameters"`},
		"into an empty notebook": {nil, "", []string{injected}, `no cell has the tag "parameters"`},
		"a Markdown cell with the tag": {[]notebook.NewCell{{Type: notebook.Markdown, Source: "text", Tags: []string{"injected-parameters"}}}, "",
			[]string{injected}, ""},
		"unknown names": {[]notebook.NewCell{code("A = 0\n# b = 1\nif b == 1: pass\nf(b=1)", "parameters")}, "",
			[]string{"A = 0\n# b = 1\nif b == 1: pass\nf(b=1) parameters", injected}, "does not assign a, b: check"},
		"all in forms": {[]notebook.NewCell{code("a = 0 #@param\nb = 'y' # @param {type:\"string\"}")}, "",
			[]string{"a = 0 #@param\nb = 'y' # @param {type:\"string\"}"}, ""},
		"some in forms": {[]notebook.NewCell{code("b = 1", "parameters"), code("a = 0 #@param")}, "",
			[]string{"b = 1 parameters", "# Parameters\nb = \"x\"\n injected-parameters", "a = 0 #@param"}, ""},
		"forms in Markdown are text": {[]notebook.NewCell{code("a = b = 1", "parameters"), {Type: notebook.Markdown, Source: "b = 1 #@param"}}, "",
			[]string{"a = b = 1 parameters", injected, "b = 1 #@param"}, "does not assign b"},
		"none": {[]notebook.NewCell{code("a = 0", "parameters")}, "{}", []string{"a = 0 parameters"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.json == "" {
				test.json = `{"a": 1, "b": "x"}`
			}
			v, err := Parse(test.json)
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

func TestInjectChangesNothingElse(t *testing.T) {
	text := `{
 "cells": [
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "p",
   "metadata": {"tags": ["parameters"]},
   "outputs": [],
   "source": ["a = 1"]
  },
  {
   "cell_type": "code",
   "execution_count": 4,
   "id": "i",
   "metadata": {"tags": ["injected-parameters"], "own": {"k": 1}},
   "outputs": [],
   "source": ["# Parameters\n", "a = 2\n"]
  }
 ],
 "metadata": {},
 "nbformat": 4,
 "nbformat_minor": 5
}`
	d, err := notebook.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := Parse(`{"a": 5}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Inject(d); err != nil || !json.Valid(d.Bytes()) {
		t.Fatal(err)
	}
	start, end, _ := strings.Cut(text, `["# Parameters\n", "a = 2\n"]`)
	if got := string(d.Bytes()); !strings.HasPrefix(got, start) || !strings.HasSuffix(got, end) {
		t.Errorf("other bytes changed:\n%s", got)
	}
	if got := d.Cell(1); got.Source != "# Parameters\na = 5\n" || got.Handle != "i" || got.ExecutionCount != 4 {
		t.Errorf("%+v", got)
	}
}
