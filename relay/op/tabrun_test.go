package op

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/page"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// tabDesk is a host whose relay has no runtime, and whose browser opens a stand-in of Colab's page.
type tabDesk struct {
	*host
	page *page.Page
	save string // LOCAL_SAVE_DIR
}

func newTabDesk(t *testing.T, o standin.Options, cfg Config) *tabDesk {
	t.Helper()
	d := &tabDesk{save: t.TempDir(), page: page.New(page.Config{Version: "1", Open: func(ctx context.Context, url string) error {
		tab, err := standin.Dial(ctx, url, o)
		if err == nil {
			t.Cleanup(tab.Close)
		}
		return err
	}})}
	t.Cleanup(d.page.Close)
	cfg.Resolve = func(string) (runtimes.Runtime, error) { return runtimes.Runtime{}, fmt.Errorf("nothing is paired") }
	cfg.Toolsets, cfg.Page, cfg.SaveDir, cfg.CheckpointDir = toolsets.All, d.page, d.save, t.TempDir()
	d.host = startHost(t, cfg)
	return d
}

// connected is newTabDesk with a tab that is connected.
func connected(t *testing.T, o standin.Options) *tabDesk {
	t.Helper()
	d := newTabDesk(t, o, Config{})
	if _, err := d.page.Connect(t.Context(), page.Request{}, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// ask calls a tool without notebook_path, with arguments in pairs.
func (d *tabDesk) ask(tool string, pairs ...any) result {
	d.t.Helper()
	arguments := args(pairs...)
	delete(arguments, "notebook_path")
	return d.call(tool, arguments)
}

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
		added := decode[Edited](t, d.ask("add_code_cell", "code", code).Structured)
		return d.ask("run_code_cell", "cellId", added.CellID)
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

func TestTheTextsOfTheToolsForCellsAboutATab(t *testing.T) {
	if r := newTabDesk(t, standin.Options{}, Config{}).ask("get_cells"); !strings.Contains(r.Content[0].Text, "Error (no_tab): ") {
		t.Error(r.Content[0].Text)
	}
	d := connected(t, standin.Options{})
	for tool, want := range map[string]string{
		"get_cells":     "The notebook in Colab's tab, 1 cell, digest ",
		"update_cell":   "Error (changed): the notebook in the tab was edited meanwhile\nNext step: Call get_cells again",
		"run_code_cell": `Error (not_found): no cell has the id "a"`,
	} {
		r := d.ask(tool, "cellId", "a", "content", "1", "expect_digest", "1")
		if tool == "get_cells" {
			r = d.ask(tool)
		}
		if text := r.Content[0].Text; !strings.Contains(text, want) || r.outcome(t).Runtime != "" {
			t.Errorf("%s: %q is not in\n%s", tool, want, text)
		}
	}
}
