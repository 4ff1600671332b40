package notebook

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"colabrelay/shared/bounded"
)

func TestCodeCellsOfANotebook(t *testing.T) {
	const file = "\ufeff" + `{"metadata": {"kernelspec": {"language": "python"}, "language_info": {"name": "ipython"}},
	"nbformat_minor": 5, "nbformat": 4, "cells": [
	{"cell_type": "markdown", "id": "a", "source": "# no code", "metadata": {}},
	{"cell_type": "code", "id": "b", "source": ["%pip install x\n", "!ls\n", "x = 1"], "outputs": [{"output_type": "stream", "text": ["y"]}], "execution_count": null},
	{"cell_type": "raw", "source": "raw"},
	{"cell_type": "code", "source": "print('ü')"},
	{"cell_type": "code", "id": "d", "source": []}]}`
	got, err := CodeCells(strings.NewReader(file))
	want := []CodeCell{{1, "b", "%pip install x\n!ls\nx = 1"}, {3, "", "print('ü')"}, {4, "d", ""}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatIsNoNotebookForPython(t *testing.T) {
	for file, want := range map[string]error{
		"":                                    ErrNotNotebook,
		"print(1)":                            ErrNotNotebook,
		"[]":                                  ErrNotNotebook,
		"{}":                                  ErrNotNotebook,
		`{"nbformat": 4}`:                     ErrNotNotebook,
		`{"nbformat": 4, "cells": []`:         ErrNotNotebook,
		`{"nbformat": 4, "cells": []} x`:      ErrNotNotebook,
		`{"nbformat": "4", "cells": []}`:      ErrNotNotebook,
		`{"nbformat": 4, "cells": {}}`:        ErrNotNotebook,
		`{"nbformat": 4, "cells": [1]}`:       ErrNotNotebook,
		`{"nbformat": 5, "cells": []}`:        ErrNotNotebook,
		`{"nbformat": 3, "worksheets": [{}]}`: ErrOldFormat,
		`{"nbformat": 4, "cells": [{"source": 7}]}`:                                   ErrNotNotebook,
		`{"nbformat": 4, "cells": [], "metadata": {"kernelspec": {"language": "R"}}}`: ErrNotPython,
		`{"nbformat": 4, "cells": []}`:                                                nil,
	} {
		if got, err := CodeCells(strings.NewReader(file)); !errors.Is(err, want) || want == nil && err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v, want %v", file, got, err, want)
		}
	}
}

func TestANotebookHasBounds(t *testing.T) {
	cells := func(n int, source string) string {
		cell := fmt.Sprintf(`{"cell_type":"code","source":%q}`, source)
		return `{"nbformat":4,"cells":[` + strings.Repeat(cell+",", n-1) + cell + `]}`
	}
	const most = 8 << 20
	half := strings.Repeat("x", MaxSourceBytes/2)
	for name, test := range map[string]struct {
		file io.Reader
		fits bool
	}{
		"most cells":   {strings.NewReader(cells(MaxCells, "")), true},
		"one more":     {strings.NewReader(cells(MaxCells+1, "")), false},
		"most code":    {strings.NewReader(cells(2, half)), true},
		"more code":    {strings.NewReader(cells(3, half)), false},
		"endless":      {io.MultiReader(strings.NewReader(`{"nbformat":4,"cells":[]`), &spaces{}), false},
		"largest file": {io.MultiReader(strings.NewReader(`{"nbformat":4,"cells":[]`), io.LimitReader(&spaces{}, most-25), strings.NewReader("}")), true},
	} {
		if _, err := codeCells(test.file, most); errors.Is(err, bounded.ErrTooLong) == test.fits || test.fits && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("the disk is broken")
	if _, err := CodeCells(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("an error of the reader became %v", err)
	}
}

// spaces is an endless file.
type spaces struct{}

func (*spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func FuzzCodeCells(f *testing.F) {
	f.Add(`{"nbformat": 4, "cells": [{"cell_type": "code", "source": ["a\n", "b"]}]}`)
	f.Add(`{"nbformat": 3}`)
	f.Add(`{"cells": [{"cell_type": "code", "id": 1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		cells, err := CodeCells(strings.NewReader(text))
		total := 0
		for i, c := range cells {
			total += len(c.Source)
			if i > 0 && c.Index <= cells[i-1].Index {
				t.Fatalf("cell %d has the index %d", i, c.Index)
			}
		}
		if err == nil && (total > 3*len(text) || !strings.Contains(text, "cells")) {
			t.Fatalf("%q has %d bytes of code", text, total)
		}
	})
}
