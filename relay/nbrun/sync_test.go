package nbrun

import (
	"strings"
	"testing"
	"time"

	"colabrelay/relay/dataflow"
	"colabrelay/relay/notebook"
)

// dryRun returns the cells that a selection would run.
func (b *book) dryRun(m VM, selection string) string {
	b.t.Helper()
	s := b.spec()
	s.Cells, s.DryRun = selection, true
	var all []string
	for _, c := range b.finish(s, m, StatusPlanned).Plan {
		if c.Run {
			all = append(all, c.CellID)
		}
	}
	return strings.Join(all, " ")
}

// states returns what get_cells says of all cells.
func (b *book) states() string {
	b.t.Helper()
	r, err := Load(b.dir, b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	file, err := notebook.OpenFile(b.path, b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	d, err := file.Read()
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	for _, s := range r.States(d) {
		all = append(all, string(s))
	}
	return strings.Join(all, " ")
}

// The code that ran is known after an edit, although nobody asked for its facts before.
func TestAnEditMakesOnlyDependantsStale(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "import json", "x = [1, 2]", "y = sum(x)", "w = 5")
	b.finish(b.spec(), m, StatusSucceeded)
	if got := b.states(); got != "clean clean clean clean" {
		t.Errorf("after a run: %s", got)
	}
	b.rewrite("import json", "x = [1, 2, 3]", "y = sum(x)", "w = 5 # a comment")
	if got := b.dryRun(m, "stale"); got != "c1 c2" {
		t.Errorf("stale after an edit: %q", got)
	}
	if got := b.dryRun(m, "dirty"); got != "c1 c2 c3" {
		t.Errorf("dirty after an edit: %q", got)
	}
	s := b.spec()
	s.Cells = "stale"
	b.finish(s, m, StatusSucceeded)
	if got := b.dryRun(m, "dirty"); got != "" {
		t.Errorf("dirty after a run of the stale cells: %q", got)
	}
	if got := b.states(); got != "clean clean clean clean" {
		t.Errorf("after a run of the stale cells: %s", got)
	}
}

func TestOneCellThatRanIsKnownAfterAnEdit(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "a = 1", "b = 2")
	for _, handle := range []string{"c0", "c1"} {
		if got, err := b.runCell(m, handle, long); err != nil || got.Status != "succeeded" {
			t.Fatal(got.Status, err)
		}
	}
	b.rewrite("a = 1", "b = 3")
	if got := b.dryRun(m, "stale"); got != "c1" {
		t.Errorf("stale after an edit: %q", got)
	}
}

func TestCodeIsKeptUpToItsBound(t *testing.T) {
	t.Parallel()
	r := newRecord("/n.ipynb")
	small, large := newCode("x = 1"), newCode(strings.Repeat("#", notebook.MaxSourceBytes))
	r.keepCode(small)
	r.keepCode(small)
	r.keepCode(large)
	if len(r.Code) != 1 || r.codeBytes != len(small.code) {
		t.Errorf("%d pieces, %d bytes", len(r.Code), r.codeBytes)
	}
	r.dropCode()
	r.keepCode(large)
	if len(r.Code) != 1 || r.codeBytes != notebook.MaxSourceBytes {
		t.Errorf("after it was dropped: %d pieces, %d bytes", len(r.Code), r.codeBytes)
	}
}

func newCode(text string) *cell { return &cell{code: text, sent: hash(text)} }

// After a restart that was asked for, nothing of the old kernel is clean.
func TestAKernelSeenSinceTheRunHasRunNoCell(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, c := range []struct {
		kernel string
		since  time.Time
		want   State
	}{
		{"k1", began.Add(time.Second), Clean},
		{"", began.Add(time.Second), Clean},
		{"k2", began.Add(-time.Second), Clean}, // seen before the run: it is the older one
		{"k2", began.Add(time.Second), Dirty},
	} {
		r := newRecord("/n.ipynb")
		r.enter("k1", "i1")
		r.History["c0"] = LastRun{KernelID: "k1", Source: hash("x = 1"), Status: CellSucceeded}
		r.UpdatedAt = began
		r.Meet(c.kernel, c.since)
		if got := r.State("c0", "x = 1"); got != c.want {
			t.Errorf("kernel %q, %v later: %s, want %s", c.kernel, c.since.Sub(began), got, c.want)
		}
	}
}

// Facts that are missing because of the other cells of a call are asked for again by the next one.
func TestPassingFactsAreNotStored(t *testing.T) {
	t.Parallel()
	r := newRecord("/book.ipynb")
	c := &cell{code: "x = 1", sent: "digest"}
	r.Life.Runs = []CellRun{{Sent: c.sent}}
	r.keepCode(c)
	r.learn(c.sent, dataflow.Facts{Problem: "reading the cells took too long", Passing: true})
	if r.factsOf(c.sent) == nil || len(r.withoutFacts([]*cell{c})) != 0 {
		t.Error("the same call asks twice")
	}
	if len(r.Facts) != 0 || r.Code[c.sent] == "" {
		t.Errorf("facts %v, code %q", r.Facts, r.Code)
	}
	r.fill()
	if missing := r.withoutFacts(nil); len(missing) != 1 {
		t.Errorf("the next call asks for %v", missing)
	}
}
