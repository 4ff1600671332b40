package output_test

import (
	"os"
	"os/exec"
	"path/filepath"
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

// cellsOfAllKinds are what a notebook's cells print and display. sys.exit is not among them,
// because the executor leaves out IPython's advice on how to leave a terminal.
var cellsOfAllKinds = []string{
	`import sys, time
from IPython.display import *
print("a"); print("b", end=""); print("c")
print("to stderr", file=sys.stderr, flush=True)
print("ü 世 \u2028 \x0c \x0b \x85 \x1b[31mred\x1b[0m <&>")`,
	`for i in range(101):
    print("\r%d%% " % i, "#" * (i // 10), end="", flush=True)
print("\rdone")
print("windows\r\nlines\r\n\rover", flush=True)
for i in range(3):
    print("\r\x1b[32m%d" % i, end="", file=sys.stderr, flush=True)`,
	`print("gone"); display("gone"); clear_output(); print("kept"); clear_output(wait=True)`,
	`first = display(HTML("<i>first</i>"), display_id="one"); print("between"); display("again", display_id="one")`,
	`second = display({"text/plain": "raw", "text/html": "<p>\n</p>"}, raw=True, metadata={"a": 1, "text/html": {"isolated": True}}, display_id=True)
second.update(Markdown("*new*"), metadata={"b": [2]})`,
	`update_display(HTML("<i>from another cell</i>"), display_id="one"); print("x"); update_display("nobody", display_id="none")`,
	`clear_output(); display(Latex("$x$"), display_id="one"); display(JSON({"z": [1, 2.50, None, "ü"], "a": {"b": True}}), Javascript("1;\n2;"), Math("x"))`,
	`1 / 0`,
	`def f():
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("more than\none line") from error
print("before")
f()`,
	`print("after"); 1 + 1`,
	`"text\nwith lines"`,
	`class Rich:
    def __repr__(self): return "<Rich>"
    def _repr_html_(self): return "<table>\n<tr/>\n</table>"
    def _repr_png_(self): return b"\x89PNG\r\n\x1a\nno picture"
    def _repr_pdf_(self): return b"%PDF"
    def _repr_json_(self): return {"rich": [1]}, {"expanded": True}
    def _repr_mimebundle_(self, include=None, exclude=None): return {"application/geo+json": {"type": "Point"}, "application/x-own": "own\ntext"}
Rich()`,
	`display({"image/png": "A" * 100_000, "text/html": "<p>%s</p>\n" % ("long\n" * 30_000), "application/json": {"long": list(range(30_000))}, "image/svg+xml": "<svg>" + "\n" * 70_000 + "</svg>", "text/plain": "x" * 100_000}, raw=True)`,
	`print("0123456789\n" * 30_000); print("long line " * 9_000)`,
	"%%bash\necho from bash\necho and to stderr >&2",
	`import warnings, logging
warnings.warn("careful"); logging.warning("logged")`,
	`import numpy, pandas
display(pandas.DataFrame({"a": [1, 2], "b": ["x", None]})); numpy.arange(3)`,
	`%matplotlib inline
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.title("ü"); plt.show(); plt.hist([1, 2, 2])`,
	``,
}

// What cells print and display must be in the notebook as nbclient writes it, with the same
// kernel, and nbformat must accept it.
func TestOutputsAreThoseOfNbclient(t *testing.T) {
	tier.Long(t)
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := start(t, s)
		source := notebook.New()
		for _, code := range cellsOfAllKinds {
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
	c, counts := output.Collector{Limits: output.ForDocuments}, make([]int, d.Len())
	for i := range counts {
		counts[i] = runCell(t, vm, c.Begin(d.Cell(i).Handle), d.Cell(i).Source)
	}
	for i, count := range counts {
		objects := []map[string]any{}
		for _, o := range c.Outputs(d.Cell(i).Handle) {
			objects = append(objects, o.Object())
		}
		if err := d.SetOutputs(i, count, objects); err != nil {
			t.Fatal(err)
		}
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
