package output_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

var pool = harness.Pool{Secret: "a secret of the tests of outputs, 32 bytes or more"}

func TestMain(m *testing.M) { pool.Main(m) }

// cells returns the cells of testdata/cells.txt; with -short the first ten. sys.exit is not among them,
// because the executor leaves out IPython's advice on how to leave a terminal.
func cells(t *testing.T) []string {
	text, err := os.ReadFile("testdata/cells.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n# %%\n")
}

// What cells print and display, and the state of their widgets, must be in the notebook as nbclient
// writes them, with the same kernel, and nbformat must accept it.
//
// nbclient loses messages of a busy machine, and then waits a minute for each.
func TestOutputsAreThoseOfNbclient(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := start(t, s)
		source := notebook.New()
		for _, code := range cells(t) {
			if _, err := source.Insert(-1, notebook.NewCell{Type: notebook.Code, Source: code}); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		before, after := filepath.Join(dir, "source.ipynb"), filepath.Join(dir, "ours.ipynb")
		write(t, before, source)
		run(t, e, source)
		write(t, after, source)
		cmd := exec.Command(stacks.Notebook(t), "testdata/nbclient_outputs.py", before, after, e.Config.Dir)
		cmd.Env = append(os.Environ(), "KERNEL_PYTHON="+s.Python, "TMPDIR="+filepath.Join(e.Config.Dir, harness.TempFolder)) // tracebacks name it
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// start starts an executor whose kernel counts from 1, as nbclient's does.
func start(t *testing.T, s stacks.Stack) *harness.Executor {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, harness.TempFolder)
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	c := harness.ExecutorConfig{Binary: pool.Binary, Python: s.Python, Dir: dir, Secret: pool.Secret, Env: []string{"TMPDIR=" + temp}}
	e, err := harness.StartExecutor(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

func write(t *testing.T, path string, d *notebook.Document) {
	t.Helper()
	if err := os.WriteFile(path, d.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs all cells and sets their outputs.
func run(t *testing.T, e *harness.Executor, d *notebook.Document) {
	t.Helper()
	key, err := auth.NewSecret(pool.Secret)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := client.New(client.Config{BaseURL: e.Ready.LocalURL, Secret: key})
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	c, counts, cells := output.Collector{Limits: output.ForDocuments}, make([]int, d.Len()), make([]*output.Cell, d.Len())
	for i := range counts {
		cells[i] = c.Begin(d.Cell(i).Handle)
		counts[i] = runCell(t, vm, cells[i], d.Cell(i).Source)
	}
	for i, count := range counts {
		objects := []map[string]any{}
		for _, o := range cells[i].Outputs() {
			objects = append(objects, o.Object())
		}
		if err := d.SetOutputs([]notebook.NewOutputs{{Index: i, ExecutionCount: count, Outputs: objects}}, notebook.MaxBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.SetWidgets(c.Widgets()); err != nil {
		t.Fatal(err)
	}
}

// runCell runs a cell and returns the kernel's execution count. nbclient does not run blank cells.
func runCell(t *testing.T, vm *client.Client, cell *output.Cell, code string) int {
	t.Helper()
	if code == "" {
		return 0
	}
	e, err := vm.Submit(t.Context(), contract.Submit{Code: code, WaitSeconds: 10})
	if err != nil {
		t.Fatal(err)
	}
	e, err = client.Follow(t.Context(), vm, e, client.FollowOptions{Visit: func(e contract.Execution) bool {
		cell.Add(t.Context(), e.Events, vm.Blobs(e.ExecutionID))
		return true
	}})
	if err != nil || !e.Status.Finished() {
		t.Fatalf("%s: %s, %v", code, e.Status, err)
	}
	return e.ExecutionCount
}
