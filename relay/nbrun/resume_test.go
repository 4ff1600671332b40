package nbrun

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/notebook"
	"colabrelay/shared/contract"
)

// five is a notebook of five cells that depend on each other and print.
func five() (sources []src) {
	for i := range 5 {
		source := fmt.Sprintf("%s\nv%d = %d\nprint('out', v%d)", says(fmt.Sprint("c", i)), i, i, max(0, i-1))
		sources = append(sources, src(source))
	}
	return sources
}

// checkFive ends the test unless each cell ran once and the notebook has all outputs.
func checkFive(t *testing.T, m *machine, b *book) {
	t.Helper()
	m.ranIs("c0", "c1", "c2", "c3", "c4")
	for i := range 5 {
		if got, want := b.outputs(fmt.Sprint("c", i)), fmt.Sprintf("out %d\n", max(0, i-1)); got != want {
			t.Errorf("cell %d shows %q, want %q", i, got, want)
		}
	}
}

func TestOneRunOfANotebookAtATime(t *testing.T) { synctest.Test(t, oneRunAtATime) }

func oneRunAtATime(t *testing.T) {
	b := write(t, "1")
	r, err := Open(b.dir, b.spec())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(b.dir, b.spec()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "book.ipynb") {
		t.Errorf("a second run: %v", err)
	}
	r.Close()
	if r, err = Open(b.dir, b.spec()); err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// A request or its answer is lost at each moment in turn. A relay that is killed there also loses what
// it would have written afterwards: the files are put back to what they were.
func TestLostAnswersAndKilledRelaysNeitherLoseNorRepeatCells(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"lost": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			withFaults(t, func(t *testing.T, m *machine, vm *faults) { cutAtEachMoment(t, m, vm, killed) })
		})
	}
}

func cutAtEachMoment(t *testing.T, m *machine, vm *faults, killed bool) {
	b := write(t, five()...)
	file, err := notebook.OpenFile(b.path, b.dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := map[string][]byte{checkpoint.Path(b.dir, Name(file.Path())): nil, b.path: nil}
	step, moment := 0, 1
	cut := func(err error) error {
		if step++; step != moment {
			return err
		}
		for path := range disk {
			disk[path], _ = os.ReadFile(path)
		}
		return errCut
	}
	vm.before = func() error { return cut(nil) }
	vm.answer = func(j contract.Job, err error) (contract.Job, error) { return j, cut(err) }
	vm.read = func(e contract.Execution, err error) (contract.Execution, error) { return e, cut(err) }
	for ; ; moment++ {
		step = 0
		got := b.advance(b.spec(), vm, long)
		if got.err == nil && got.Status() == StatusSucceeded {
			break
		}
		if !errors.Is(got.err, errCut) || moment > 60 {
			t.Fatalf("moment %d: %v %s %q", moment, got.err, got.cells(), got.Outcome.Notes)
		}
		for path, text := range disk {
			if !killed {
				continue
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkFive(t, m, b)
}
