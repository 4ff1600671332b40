package nbrun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/client"
	"colabrelay/relay/notebook"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

const secret = "a secret of the tests of notebook runs, 32 bytes or more"

// pool has the executors, with real kernels, that the tests share.
var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

// machine is a real executor with a real kernel.
type machine struct {
	*client.Client
	*harness.Executor
	t   *testing.T
	dir string // the working directory
}

// borrow returns a machine of the pool with an empty working directory and namespace.
func borrow(t *testing.T, s stacks.Stack) *machine {
	t.Helper()
	m := newMachine(t, pool.Borrow(t, s.Python))
	t.Cleanup(func() { m.quiet("%reset -f") })
	return m
}

// start starts a machine that the test may kill. On a folder that was used before, it is
// the same instance.
func start(t *testing.T, s stacks.Stack, dir string) *machine {
	t.Helper()
	e, err := harness.StartExecutor(t.Context(), harness.ExecutorConfig{Binary: pool.Binary, Python: s.Python, Dir: dir, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return newMachine(t, e)
}

func newMachine(t *testing.T, e *harness.Executor) *machine {
	t.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: e.Ready.LocalURL, Secret: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &machine{Client: c, Executor: e, t: t, dir: e.Config.Dir}
}

// quiet runs code of the test itself.
func (m *machine) quiet(code string) {
	m.t.Helper()
	e, err := m.Submit(context.WithoutCancel(m.t.Context()), contract.Submit{Code: code, WaitSeconds: 30, Unstored: true})
	if err != nil || e.Status != contract.StatusSucceeded {
		m.t.Errorf("%s: %s %+v, %v", code, e.Status, e.Error, err)
	}
}

// restart replaces the kernel.
func (m *machine) restart() {
	m.t.Helper()
	if _, err := m.RestartKernel(m.t.Context(), m.kernelID()); err != nil {
		m.t.Fatal(err)
	}
}

// kernelID returns the current kernel's id.
func (m *machine) kernelID() string {
	m.t.Helper()
	k, err := m.CurrentKernel(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return k.KernelID
}

// ran returns the lines that the cells appended to the file "ran", by kernel.
func (m *machine) ran() []string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "ran"))
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// ranIs ends the test unless these cells ran, in this order.
func (m *machine) ranIs(want ...string) {
	m.t.Helper()
	if diff := cmp.Diff(strings.Join(want, " "), strings.Join(m.ran(), " ")); diff != "" {
		m.t.Fatalf("the cells that ran (-want +got):\n%s", diff)
	}
}

// touch creates a file in the machine's working directory.
func (m *machine) touch(name string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// says is code that appends a word to the file "ran".
func says(word string) string { return fmt.Sprintf("open('ran', 'a').write('%s\\n')", word) }

// src is a cell of a test's notebook: "tag tag| source", or only a source.
type src string

// book is a notebook on disk with a record.
type book struct {
	t    *testing.T
	path string
	dir  string // of the records
	lost bool   // the answers of its calls
}

// write makes a notebook with these code cells, whose ids are c0, c1 and so on.
func write(t *testing.T, sources ...src) *book {
	t.Helper()
	b := &book{t: t, path: filepath.Join(t.TempDir(), "book.ipynb"), dir: t.TempDir()}
	b.rewrite(sources...)
	return b
}

// rewrite replaces the notebook's file.
func (b *book) rewrite(sources ...src) {
	b.t.Helper()
	var cells []map[string]any
	for i, s := range sources {
		cells = append(cells, cellJSON(fmt.Sprintf("c%d", i), s))
	}
	b.rewriteCells(cells...)
}

func (b *book) rewriteCells(cells ...map[string]any) {
	b.t.Helper()
	text, err := json.MarshalIndent(map[string]any{
		"cells": cells, "metadata": map[string]any{"language_info": map[string]any{"name": "python"}}, "nbformat": 4, "nbformat_minor": 5,
	}, "", " ")
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func cellJSON(id string, s src) map[string]any {
	tags, source, tagged := strings.Cut(string(s), "| ")
	if !tagged {
		tags, source = "", string(s)
	}
	return map[string]any{
		"cell_type": "code", "id": id, "metadata": map[string]any{"tags": strings.Fields(tags)},
		"execution_count": nil, "outputs": []any{}, "source": source,
	}
}

// spec is a run of the notebook with the defaults.
func (b *book) spec() Spec { return Spec{Path: b.path} }

// outputs returns the texts of a cell's outputs.
func (b *book) outputs(handle string) string {
	b.t.Helper()
	text, err := os.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	d, err := notebook.Parse(text)
	if err != nil {
		b.t.Fatal(err)
	}
	i, err := d.Find(handle)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(d.Cell(i).Outputs) == 0 {
		return ""
	}
	var outputs []struct {
		Text   any
		EName  string
		EValue string
		Data   map[string]any
	}
	if err := json.Unmarshal(d.Cell(i).Outputs, &outputs); err != nil {
		b.t.Fatal(err)
	}
	var all []string
	for _, o := range outputs {
		switch {
		case o.EName != "":
			all = append(all, o.EName+": "+o.EValue)
		case o.Data != nil:
			all = append(all, joined(o.Data["text/plain"]))
		default:
			all = append(all, joined(o.Text))
		}
	}
	return strings.Join(all, "|")
}

func joined(text any) string {
	lines, ok := text.([]any)
	if !ok {
		s, _ := text.(string)
		return s
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprint(&b, line)
	}
	return b.String()
}

// attempt is the result of one call.
type call struct {
	Outcome
	Record
	printed string
	err     error
}

const long = 60 * time.Second

// advance does what one call of run_notebook does in this package.
func (b *book) advance(s Spec, vm VM, callTime time.Duration, change ...func(*Options)) call {
	b.t.Helper()
	r, err := Open(b.dir, s)
	if err != nil {
		return call{err: err}
	}
	defer r.Close()
	var got call
	o := Options{
		Until: time.Now().Add(callTime),
		Output: func(_ CellRecord, _ string, events []contract.Event) {
			for _, ev := range events {
				got.printed += ev.Text
			}
		},
	}
	for _, f := range change {
		f(&o)
	}
	got.Outcome, got.err = r.Advance(within.Context(b.t), vm, o)
	if got.err == nil && !b.lost {
		if err := r.Delivered(); err != nil {
			b.t.Error(err)
		}
	}
	got.Record = *r.Record()
	return got
}

// reach repeats a short call until the cell runs. Its code begins with says(handle).
func (b *book) reach(m *machine, s Spec, vm VM, handle string, change ...func(*Options)) (got call) {
	b.t.Helper()
	within.Until(b.t, handle+" runs", func() bool {
		got = b.advance(s, vm, 200*time.Millisecond, change...)
		if got.err != nil || got.Status().Finished() {
			b.t.Fatalf("%s does not run: error %v, status %s, %s", handle, got.err, got.Status(), got.cells())
		}
		return got.Current != nil && got.Current.Handle == handle && slices.Contains(m.ran(), handle)
	})
	return got
}

// finish makes a call that must end the run with this status.
func (b *book) finish(s Spec, vm VM, want Status) call {
	b.t.Helper()
	got := b.advance(s, vm, long)
	if got.err != nil || got.Status() != want {
		b.t.Fatalf("error %v, status %s, want %s\n%s\nnotes %q", got.err, got.Status(), want, got.cells(), got.Outcome.Notes)
	}
	return got
}

// Status is the run's status.
func (c call) Status() Status { return c.Outcome.Status }

// cells returns the status of each planned cell: "c0:succeeded c1:failed".
func (c call) cells() string {
	var all []string
	for _, planned := range c.Run.Plan {
		all = append(all, planned.Handle+":"+string(planned.Status))
	}
	return strings.Join(all, " ")
}

// cellsAre ends the test unless the cells have these statuses.
func (c call) cellsAre(t *testing.T, want string) {
	t.Helper()
	if diff := cmp.Diff(want, c.cells()); diff != "" {
		t.Fatalf("statuses (-want +got):\n%s\nnotes %q", diff, c.Outcome.Notes)
	}
}
