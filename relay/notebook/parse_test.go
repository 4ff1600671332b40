package notebook

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"colabrelay/shared/bounded"
)

func TestTheCellsOfANotebook(t *testing.T) {
	d := parsed(t, "\ufeff"+`{"metadata": {"kernelspec": {"language": "python"}, "language_info": {"name": "ipython"}},
	"nbformat_minor": 5, "nbformat": 4, "cells": [
	{"cell_type": "markdown", "id": "a", "source": "# no code\n#@title none", "metadata": {"tags": ["x", 1, "y"]}},
	{"cell_type": "code", "id": "b", "source": ["%pip install x\n", "!ls\n", "x = 1"], "outputs": [{"output_type": "stream", "text": ["y"]}], "execution_count": 12},
	{"cell_type": "raw", "source": null, "id": "c", "metadata": {"tags": "x"}},
	{"cell_type": "code", "id": "d", "source": "print('ü\ud83d\ude00\udc00')", "outputs": [ ], "execution_count": null},
	{"cell_type": "code", "id": "e", "source": [], "outputs": [{"data": {"application/json": [NaN, -Infinity, Infinity, "NaN\\"]}}]}]}`)
	want := []Cell{
		{Index: 0, Handle: "a", Type: Markdown, Source: "# no code\n#@title none", Tags: []string{"x", "y"}},
		{Index: 1, Handle: "b", Type: Code, Source: "%pip install x\n!ls\nx = 1", ExecutionCount: 12, Outputs: []byte(`[{"output_type": "stream", "text": ["y"]}]`)},
		{Index: 2, Handle: "c", Type: Raw},
		{Index: 3, Handle: "d", Type: Code, Source: "print('ü😀\ufffd')", Halves: true},
		{Index: 4, Handle: "e", Type: Code, Outputs: []byte(`[{"data": {"application/json": [NaN, -Infinity, Infinity, "NaN\\"]}}]`)},
	}
	for i, want := range want {
		if got := d.Cell(i); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if d.Len() != len(want) || d.Minor() != 5 || !d.IsPython() || d.Language() != "ipython" || len(d.Digest()) != 64 {
		t.Errorf("%d cells, 4.%d, %s", d.Len(), d.Minor(), d.Language())
	}
	for metadata, python := range map[string]bool{
		`{"language_info": {"name": "plaintext"}}`: true, `{"language_info": {"name": "plaintext"}, "kernelspec": {"name": "python3"}}`: true,
		`{"language_info": {"name": "plaintext"}, "kernelspec": {"name": "ir"}}`: false, `{"language_info": {"name": "R"}}`: false,
	} {
		if d := parsed(t, `{"nbformat": 4, "metadata": `+metadata+`, "cells": []}`); d.IsPython() != python {
			t.Errorf("%s: %s", metadata, d.Language())
		}
	}
}

// Python takes the last of two equal keys, and so does an edit.
func TestOfEqualKeysTheLastCounts(t *testing.T) {
	d := parsed(t, `{"nbformat": 3, "nbformat": 4, "cells": [{}], "cells": [{"source": "a", "cell_type": "raw", "source": "b", "cell_type": "code", "outputs": [1], "outputs": []}]}`)
	if c := d.Cell(0); d.Len() != 1 || c.Source != "b" || c.Type != Code || c.Outputs != nil {
		t.Errorf("%+v", c)
	}
	if err := d.SetSource(0, "c", Markdown); err != nil {
		t.Fatal(err)
	}
	want := `{"nbformat": 3, "nbformat": 4, "cells": [{}], "cells": [{"source": "a", "cell_type": "raw", "source": "c", "cell_type": "markdown"}]}`
	if got := string(d.Bytes()); got != want {
		t.Error(got)
	}
}

func TestWhatIsNoNotebook(t *testing.T) {
	for file, want := range map[string]struct {
		err  error
		text string
	}{
		"print(1)":                                          {ErrNotNotebook, "at byte 0, in line 1"},
		"{\"nbformat\": 4,\n<<<<<<< HEAD\n":                 {ErrNotNotebook, "line 2 is a conflict marker of git"},
		"{}":                                                {ErrNotNotebook, "no format version"},
		`{"nbformat": 4, "cells": []`:                       {ErrNotNotebook, "it ends too early"},
		`{"nbformat": 4, "cells": []} x`:                    {ErrNotNotebook, "something follows"},
		`{"nbformat": 4, "cells": [{},]}`:                   {ErrNotNotebook, "'{'"},
		`{"nbformat": 5, "cells": []}`:                      {ErrOldFormat, "newer than this program"},
		`{"nbformat": 3, "worksheets": [{}]}`:               {ErrOldFormat, "open the notebook in Jupyter or Colab and save it"},
		`{"nbformat": 4, "cells": [{"source":7}]}`:          {ErrNotNotebook, "source is not text"},
		"{\"nbformat\": 4, \"cells\": [], \"a\": \"\n\"}":   {ErrNotNotebook, "a control character"},
		`{"nbformat": 4, "cells": [], "a": "\u12g4"}`:       {ErrNotNotebook, "a backslash"},
		`{"nbformat": 4, "cells": [], "a": 01}`:             {ErrNotNotebook, "a number"},
		"{\"nbformat\": 4, \"cells\": [], \"a\": \"\xff\"}": {ErrNotNotebook, "UTF-8"},
	} {
		if d, err := Parse([]byte(file)); !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) || d != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestANotebookHasBounds(t *testing.T) {
	cells := func(n int, source string) string {
		return `{"nbformat":4,"cells":[` + strings.TrimSuffix(strings.Repeat(`{"cell_type":"code","source":`+source+`},`, n), ",") + `]}`
	}
	repeat := func(n int, text string) string { return strings.Repeat(text, n) }
	const small = 1000
	for name, test := range map[string]struct {
		fits, over string
		err        error
	}{
		"bytes":   {cells(0, "") + repeat(small-len(cells(0, "")), " "), cells(0, "") + repeat(small-len(cells(0, ""))+1, " "), bounded.ErrTooLong},
		"cells":   {cells(MaxCells, `""`), cells(MaxCells+1, `""`), bounded.ErrTooLong},
		"source":  {cells(2, `"`+repeat(MaxSourceBytes, "x")+`"`), cells(1, `"`+repeat(MaxSourceBytes+1, "x")+`"`), bounded.ErrTooLong},
		"nesting": {cells(1, `"", "a":`+repeat(maxNesting-3, "[")+repeat(maxNesting-3, "]")), cells(1, `"", "a":`+repeat(maxNesting-2, "[")+repeat(maxNesting-2, "]")), ErrNotNotebook},
	} {
		most := MaxBytes
		if name == "bytes" {
			most = small
		}
		if _, err := parseUpTo([]byte(test.fits), most); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := parseUpTo([]byte(test.over), most); !errors.Is(err, test.err) {
			t.Errorf("more %s: %v", name, err)
		}
	}
}

// parsed parses a notebook that is one.
func parsed(t *testing.T, text string) *Document {
	t.Helper()
	d, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTagsAndParametersOfACellAreBounded(t *testing.T) {
	many := strings.Repeat(`"t",`, 2*maxTags) + `"t"`
	d, err := Parse([]byte(`{"cells": [{"cell_type": "code", "id": "a", "metadata": {"tags": [` + many + `]}, "outputs": [], "execution_count": null,
		"source": "` + strings.Repeat(`a = 1 #@param\n`, 2*maxParams) + `"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`))
	if err != nil {
		t.Fatal(err)
	}
	if c := d.Cell(0); len(c.Tags) != maxTags || len(c.Params) != maxParams || c.Params[0] != (Param{"a", "1"}) {
		t.Errorf("%d tags, %d parameters, the first %+v", len(c.Tags), len(c.Params), c.Params[0])
	}
}

// Escape sequences stand wherever a text can be cut within one.
func TestANotebookThatIsCutAnywhereIsRefused(t *testing.T) {
	whole := `{"metadata": {"kernelspec": {"name": "p\n3", "language": "\u0070y"}, "language_info": {"name": "i\b"}}, "nbformat": 4, "nbformat_minor": 5,
	"cells": [{"cell_type": "c\u006fde", "id": "a\b", "metadata": {"id": "\u0062", "tags": ["\ud83d\ude00"]}, "source": ["\\\n", "x"], "outputs": [{"t\"": -1.5e3}], "execution_count": 12}]}`
	parsed(t, whole)
	for i := range len(whole) {
		if _, err := Parse([]byte(whole[:i])); !errors.Is(err, ErrNotNotebook) {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
}
