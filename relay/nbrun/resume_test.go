package nbrun

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

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

// The answer of each submit is lost in turn, and the relay begins anew after each.
func TestLostSubmitAnswersNeitherLoseNorRepeatCells(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, five()...)
		lost := map[string]bool{}
		vm.answer = func(e contract.Execution, err error) (contract.Execution, error) {
			if err == nil && !lost[e.RequestID] {
				lost[e.RequestID] = true
				return contract.Execution{}, errCut
			}
			return e, err
		}
		calls := 0
		for {
			got := b.advance(b.spec(), vm, long)
			if got.err == nil && got.Status() == StatusSucceeded {
				break
			}
			if calls++; calls > 12 || !errors.Is(got.err, errCut) || !got.CanContinue {
				t.Fatalf("call %d: %v %s %s", calls, got.err, got.Status(), got.cells())
			}
		}
		checkFive(t, m, b)
		if calls != 5 {
			t.Errorf("%d answers were lost", calls)
		}
	})
}

// The relay loses each read in turn.
func TestLostReadsNeitherLoseNorRepeatCells(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
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

// A submit that never arrived is made again; nothing of it ran.
func TestSubmitsThatDidNotArriveAreMadeAgain(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, five()...)
		tries := 0
		vm.before = func(contract.Submit) error {
			if tries++; tries%2 == 1 {
				return errCut
			}
			return nil
		}
		for range 12 {
			if got := b.advance(b.spec(), vm, long); got.err == nil && got.Status() == StatusSucceeded {
				checkFive(t, m, b)
				return
			}
		}
		t.Fatal("the run does not end")
	})
}

// The files are put back to what they were at each moment at which the relay may be killed:
// just before a submit, and just after its answer.
func TestAKilledRelayNeitherLosesNorRepeatsCells(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, five()...)
		file, err := notebook.OpenFile(b.path, b.dir)
		if err != nil {
			t.Fatal(err)
		}
		record := checkpoint.Path(b.dir, Name(file.Path()))
		var disk [2][]byte
		take := func() { disk[0], _ = os.ReadFile(record); disk[1], _ = os.ReadFile(b.path) }
		for kill := 1; ; kill++ {
			step := 0
			at := func() bool { step++; return step == kill }
			vm.before = func(contract.Submit) error {
				if at() {
					take()
					return errCut
				}
				return nil
			}
			vm.answer = func(e contract.Execution, err error) (contract.Execution, error) {
				if at() {
					take()
					return contract.Execution{}, errCut
				}
				return e, err
			}
			vm.read = vm.answer
			got := b.advance(b.spec(), vm, long)
			if got.err == nil && got.Status() == StatusSucceeded {
				break
			}
			if !errors.Is(got.err, errCut) || kill > 60 {
				t.Fatalf("kill %d: %v %s", kill, got.err, got.cells())
			}
			for i, path := range []string{record, b.path} {
				if err := os.WriteFile(path, disk[i], 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		checkFive(t, m, b)
	})
}

func TestARunGoesOnAfterTheCallsTime(t *testing.T) {
	each(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow+"\nprint('slept')"), src(says("c2")))
		got := b.reach(m, b.spec(), vm, "c1")
		if !got.CanContinue || got.Current.ExecutionID == "" {
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

func TestOneRunOfANotebookAtATime(t *testing.T) {
	t.Parallel()
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
