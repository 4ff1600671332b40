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

// The relay loses each read in turn.
func TestLostReadsNeitherLoseNorRepeatCells(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, five()...)
		reads, calls := 0, 0
		vm.read = func(e contract.Execution, err error) (contract.Execution, error) {
			if reads++; reads%2 == 1 {
				return contract.Execution{}, errCut
			}
			return e, err
		}
		for {
			got := b.advance(b.spec(), vm, long)
			if got.err == nil && got.Status() == StatusSucceeded {
				break
			}
			if calls++; calls > 30 || !errors.Is(got.err, errCut) {
				t.Fatalf("call %d: %v %s %s", calls, got.err, got.Status(), got.cells())
			}
		}
		checkFive(t, m, b)
	})
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

// The files are put back to what they were at each moment at which the relay may be killed: just
// before a submit, and just after any answer.
func TestAKilledRelayNeitherLosesNorRepeatsCells(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, five()...)
		file, err := notebook.OpenFile(b.path, b.dir)
		if err != nil {
			t.Fatal(err)
		}
		record := checkpoint.Path(b.dir, Name(file.Path()))
		var disk [2][]byte
		paths := []string{record, b.path}
		take := func() {
			for i, path := range paths {
				disk[i], _ = os.ReadFile(path)
			}
		}
		for kill := 1; ; kill++ {
			step := 0
			at := func() bool { step++; return step == kill }
			vm.before = func() error {
				if at() {
					take()
					return errCut
				}
				return nil
			}
			vm.answer = func(j contract.Job, err error) (contract.Job, error) {
				if at() {
					take()
					return contract.Job{}, errCut
				}
				return j, err
			}
			vm.read = func(e contract.Execution, err error) (contract.Execution, error) {
				if at() {
					take()
					return contract.Execution{}, errCut
				}
				return e, err
			}
			got := b.advance(b.spec(), vm, long)
			if got.err == nil && got.Status() == StatusSucceeded {
				break
			}
			if !errors.Is(got.err, errCut) || kill > 60 {
				t.Fatalf("kill %d: %v %s %q", kill, got.err, got.cells(), got.Outcome.Notes)
			}
			for i, path := range paths {
				if err := os.WriteFile(path, disk[i], 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		checkFive(t, m, b)
	})
}
