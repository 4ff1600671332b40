package nbrun

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/within"
)

// An editor saves the notebook while it runs, and its cells have other handles afterwards.
func TestCellsWithNewHandlesAreNotRunAgain(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	sources := []src{src(says("c0")), src(says("c1") + slow + "\nprint('second')"), src(says("c2"))}
	for name, c := range map[string]struct{ before, edit func(b *book) }{
		"other ids": {
			func(*book) {},
			func(b *book) { b.replace(`"id": "c`, `"id": "new`) },
		},
		"a cell above, without ids": {
			func(b *book) { b.withoutIDs(sources...) },
			func(b *book) { b.withoutIDs(append([]src{"'a new cell'"}, sources...)...) },
		},
	} {
		b := write(t, sources...)
		c.before(b)
		within.Until(t, "c1 runs", func() bool {
			got := b.advance(b.spec(), m, 200*time.Millisecond)
			return got.err != nil || slices.Contains(m.ran(), "c1")
		})
		c.edit(b)
		b.advance(b.spec(), m, 200*time.Millisecond) // queued cells are withdrawn while c1 waits
		m.touch("go")
		got := b.advance(b.spec(), m, long)
		if got.err != nil || got.Status() != StatusSucceeded || len(got.Run.Plan) != 3 {
			t.Fatalf("%s: %v, %s, %s %q", name, got.err, got.Status(), got.cells(), got.Outcome.Notes)
		}
		m.ranIs("c0", "c1", "c2")
		last := got.Run.Plan[1]
		if text := b.outputs(last.Handle); text != "second\n" || strings.HasPrefix(last.Handle, "c") {
			t.Errorf("%s: %s shows %q", name, last.Handle, text)
		}
		for _, file := range []string{"go", "ran"} {
			if err := os.Remove(m.dir + "/" + file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// replace edits the notebook's text.
func (b *book) replace(old, text string) {
	b.t.Helper()
	if err := os.WriteFile(b.path, []byte(strings.ReplaceAll(b.text(), old, text)), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// withoutIDs replaces the notebook by one of nbformat 4.4.
func (b *book) withoutIDs(sources ...src) {
	b.t.Helper()
	var cells []map[string]any
	for _, s := range sources {
		c := cellJSON("", s)
		delete(c, "id")
		cells = append(cells, c)
	}
	b.rewriteCells(cells...)
	b.replace(`"nbformat_minor": 5`, `"nbformat_minor": 4`)
}
