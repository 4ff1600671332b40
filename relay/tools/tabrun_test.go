package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestRunInTheTabsOwnKernel(t *testing.T) {
	tier.Long(t)
	kernel, err := standin.StartKernel(t.Context(), standin.KernelOptions{Python: stacks.Old(t).Python, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kernel.Close)
	d := connected(t, standin.Options{Execute: kernel.Execute})
	run := func(code string) result {
		t.Helper()
		added := decode[AddedCell](t, d.ask("add_code_cell", "code", code).Structured)
		return d.ask("run_code_cell", "cellId", added.NewCellID)
	}
	r := run("import sys\nx = 6\nprint('printed')\nprint('warned', file=sys.stderr)\nx * 7")
	got := r.run(t)
	if r.IsError || got.Status != "succeeded" || got.Stdout != "printed\n" || got.Stderr != "warned\n" || got.Result == nil || *got.Result != "42" || got.ExecutionID != "" || got.NextCommand != "" {
		t.Errorf("%s", r.Structured)
	}
	if !slices.Contains(got.Notes, ownKernelNote) || strings.Contains(r.Content[0].Text, "execution_id") || r.outcome(t).Runtime != "" {
		t.Errorf("%s", r.Content[0].Text)
	}
	r = run("print(x)\nraise ValueError('no ' + str(x))")
	p := r.outcome(t).Error
	if p == nil || p.Code != "failed" || p.EName != "ValueError" || p.EValue != "no 6" || !strings.Contains(p.Traceback, "ValueError: no 6") || strings.Contains(p.Traceback, "\x1b") || r.run(t).Stdout != "6\n" {
		t.Errorf("%s", r.Structured)
	}
	r = run("print('\\n'.join(str(i) for i in range(100_000)))")
	got = r.run(t)
	if r.IsError || !got.Truncated || !strings.HasPrefix(got.Stdout, "0\n1\n") || !strings.HasSuffix(got.Stdout, "99999\n") || strings.Contains(r.Content[0].Text, "get_execution") || !strings.HasPrefix(got.NextCommand, "get_cells(cellId=") {
		t.Errorf("%s", r.Structured)
	}
	if len(got.SavedFiles) != 1 || !strings.HasPrefix(got.SavedFiles[0].Path, filepath.Join(d.save, "executions", "tab-")) {
		t.Fatalf("%+v", got.SavedFiles)
	}
	if saved, err := os.ReadFile(got.SavedFiles[0].Path); err != nil || strings.Count(string(saved), "\n") != 100_000 {
		t.Errorf("%d bytes, %v", len(saved), err)
	}
}

func TestRunsInTheTabThatCannotWork(t *testing.T) {
	text := standin.Cell{Type: "markdown", ID: "text", Source: []string{"# T"}}
	for name, test := range map[string]struct {
		o          standin.Options
		cell, code string
		words      []string
	}{
		"a text cell":   {standin.Options{Execute: printing()}, "text", "bad_request", []string{"markdown cell"}},
		"not confirmed": {standin.Options{Execute: printing(), RunAnyway: make(chan struct{})}, "a", "not_run", []string{"Run anyway"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Notebook = standin.NewNotebook(cell("a", "1"), text)
			d := connected(t, test.o)
			d.refused(d.ask("run_code_cell", "cellId", test.cell), test.code, test.words...)
			if cells := d.cells(); cells.Cells[0].State != "" {
				t.Errorf("%+v", cells.Cells[0])
			}
		})
	}
}
