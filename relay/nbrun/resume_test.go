package nbrun

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/notebook"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
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

func TestARunGoesOnAfterTheCallsTime(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow+"\nprint('slept')"), src(says("c2")))
		got := b.reach(m, b.spec(), vm, "c1")
		if !got.CanContinue || got.Current.Last().ExecutionID == "" {
			t.Fatalf("after the first call: %v %s %+v", got.err, got.cells(), got.Current)
		}
		m.touch("go")
		got = b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c2")
		if b.outputs("c1") != "slept\n" {
			t.Errorf("it shows %q", b.outputs("c1"))
		}
		if got = b.finish(b.spec(), vm, StatusSucceeded); len(m.ran()) != 6 {
			t.Errorf("a finished run called again runs %v", m.ran())
		}
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

// The answer of the submit is lost, and then the submit itself: it is made again, and nothing
// runs twice.
func TestLostSubmitsNeitherLoseNorRepeatCells(t *testing.T) {
	tier.Long(t)
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, five()...)
		tries := 0
		vm.before = func() error {
			if tries++; tries == 1 {
				return errCut
			}
			return nil
		}
		vm.answer = func(j contract.Job, err error) (contract.Job, error) {
			if err == nil && tries == 2 {
				return contract.Job{}, errCut
			}
			return j, err
		}
		for range 2 {
			if got := b.advance(b.spec(), vm, long); !errors.Is(got.err, errCut) || !got.CanContinue {
				t.Fatalf("%v %s %s", got.err, got.Status(), got.cells())
			}
		}
		b.finish(b.spec(), vm, StatusSucceeded)
		checkFive(t, m, b)
	})
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

// Nobody calls after the first answer: the notebook runs to its end by itself, and a later call
// fetches everything.
func TestANotebookOfThreeHundredCellsFinishesWithoutARelay(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	sources := []src{src("import os, time\nwhile not os.path.exists('go'): time.sleep(.01)\nn = 0")}
	for range 299 {
		sources = append(sources, "n += 1\nprint(n)")
	}
	b := write(t, sources...)
	for i := range 100 {
		got := b.advance(b.spec(), m, 200*time.Millisecond)
		if got.err != nil || i == 99 {
			t.Fatalf("%v %s", got.err, got.cells())
		}
		if got.Current != nil {
			break
		}
	}
	m.touch("go")
	r, err := Load(b.dir, b.path)
	if err != nil {
		t.Fatal(err)
	}
	for state := contract.JobRunning; state != contract.JobFinished; {
		j, err := m.Job(t.Context(), r.Run.Job.JobID, 300, contract.MaxWait)
		if state = j.State; err != nil || state.Ended() && state != contract.JobFinished {
			t.Fatalf("%v %+v", err, j)
		}
	}
	b.finish(b.spec(), m, StatusSucceeded)
	for i := 1; i < 300; i++ {
		if got, want := b.outputs(fmt.Sprint("c", i)), fmt.Sprintf("%d\n", i); got != want {
			t.Fatalf("cell %d shows %q, want %q", i, got, want)
		}
	}
}
