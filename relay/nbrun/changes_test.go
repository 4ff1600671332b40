package nbrun

import (
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// slow waits until the test writes the file "go" into the working directory.
const slow = "\nimport os, time\nwhile not os.path.exists('go'): time.sleep(.01)"

func TestCellsEditedWhileQueuedRunWithTheirNewSource(t *testing.T) {
	tier.Long(t)
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		before := []src{src(says("c0")), src(says("c1") + slow), src(says("c2")), src(says("c3"))}
		b := write(t, before...)
		b.reach(m, b.spec(), vm, "c1")
		before[2], before[3] = src(says("edited")+"\nprint('new')"), before[3]+"\n'also'"
		b.rewrite(before...)
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "edited", "c3")
		if b.outputs("c2") != "new\n" || b.outputs("c3") != "'also'" {
			t.Errorf("outputs %q, %q", b.outputs("c2"), b.outputs("c3"))
		}
	})
}

func TestOutputsOfACellEditedWhileItRanAreNotInTheNotebook(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow+"\nprint('old')"), src(says("c2")))
		b.reach(m, b.spec(), vm, "c1")
		b.rewrite(src(says("c0")+"#"), "print('new')", src(says("c2")))
		m.touch("go")
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c2")
		if text := b.outputs("c1"); text != "" {
			t.Errorf("the edited cell shows %q", text)
		}
		if notes := strings.Join(got.Outcome.Notes, "\n"); !strings.Contains(notes, "cell 0 (id c0) was edited after it had run") || !strings.Contains(notes, "cell 1 (id c1) was edited while it ran") {
			t.Errorf("notes %q", notes)
		}
		if state := got.Record.state(&cell{handle: "c1", source: hash("print('new')")}); state != Dirty {
			t.Errorf("its state is %s", state)
		}
	})
}

func TestCellsInsertedDeletedAndMovedMeanwhile(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")), src(says("c3")), src(says("c4")))
		b.reach(m, b.spec(), vm, "c1")
		b.rewriteCells(
			cellJSON("above", src(says("above"))), cellJSON("c0", src(says("c0"))), cellJSON("c1", src(says("c1")+slow)),
			cellJSON("c4", src(says("c4"))), cellJSON("new", src(says("new"))), cellJSON("c2", src(says("c2"))),
		)
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c1", "c4", "new", "c2")
		if notes := strings.Join(got.Run.Notes, "\n"); !strings.Contains(notes, "above cells that have run") {
			t.Errorf("notes %q", notes)
		}
		if why := got.Run.cell("c3").Why; !strings.Contains(why, "deleted") {
			t.Errorf("the deleted cell: %q", why)
		}
	})
}

func TestOtherArgumentsReplaceAnUnfinishedRun(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src(says("c1")+slow), src(says("c2")))
	b.reach(m, b.spec(), m, "c1")
	s := b.spec()
	s.Cells = "c2"
	got := b.finish(s, m, StatusSucceeded)
	got.cellsAre(t, "c2:succeeded")
	m.ranIs("c0", "c1", "c2")
	if notes := strings.Join(got.Outcome.Notes, ""); !strings.Contains(notes, "is replaced: 1 of 3 cells were done") {
		t.Errorf("notes %q", notes)
	}
}

// Nothing would interrupt such a job later: the new run does not know it.
func TestAReplacedRunsUnansweredJobIsInterruptedToo(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")+slow), src(says("c1")))
		vm.answer = func(contract.Job, error) (contract.Job, error) { return contract.Job{}, errCut }
		if got := b.advance(b.spec(), vm, long); !errors.Is(got.err, errCut) {
			t.Fatalf("%v %s", got.err, got.cells())
		}
		vm.answer = nil
		s := b.spec()
		s.Cells = "c1"
		b.finish(s, vm, StatusSucceeded)
	})
}

// Cells of nbformat 4.4 have no ids. They are exchanged in the file while they wait.
func TestCellsWithoutIDsThatAreExchangedRunInTheirNewOrder(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		cells := []src{src(says("c0") + slow), src(says("c1")), src(says("c2")), src(says("c3"))}
		b := write(t, cells...)
		b.withoutIDs(cells...)
		for range 100 {
			if got := b.advance(b.spec(), vm, 200*time.Millisecond); got.err != nil || len(m.ran()) > 0 {
				break
			}
		}
		b.withoutIDs(cells[0], cells[3], cells[1], src(says("edited")))
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		got := b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "c3", "c1", "edited")
		if notes := strings.Join(got.Run.Notes, "\n"); !strings.Contains(notes, "no longer in the notebook as it was") {
			t.Errorf("notes %q", notes)
		}
	})
}

// The answer to the edit is lost, and another relay goes on: the edit counts once.
func TestAnEditWhoseAnswerWasLostIsFollowedOnce(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")+slow), src(says("c1")), src(says("c2")))
		b.reach(m, b.spec(), vm, "c0")
		b.rewrite(src(says("c0")+slow), src(says("first")), src(says("c2")))
		vm.answer = func(j contract.Job, err error) (contract.Job, error) { return contract.Job{}, errCut }
		if got := b.advance(b.spec(), vm, 300*time.Millisecond); !errors.Is(got.err, errCut) {
			t.Fatalf("%v", got.err)
		}
		vm.answer = nil
		b.rewrite(src(says("c0")+slow), src(says("second")), src(says("c2")))
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		b.finish(b.spec(), vm, StatusSucceeded)
		m.ranIs("c0", "second", "c2")
	})
}

// The job is another program edited the run: the run says so, and runs what is
// left when the job has ended.
func TestAnEditByAnotherProgramIsNamed(t *testing.T) {
	withFaults(t, func(t *testing.T, m *machine, vm *faults) {
		b := write(t, src(says("c0")+slow), src(says("c1")))
		got := b.reach(m, b.spec(), vm, "c0")
		job := got.Run.Job
		_, err := m.PatchJob(t.Context(), job.InstanceID, job.JobID, contract.JobPatch{
			PatchID: "other", Revision: job.Revision, From: job.Steps[1].ID, Steps: []contract.JobStep{{StepID: "other", Code: says("other")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.rewrite(src(says("c0")+slow), src(says("edited")))
		b.advance(b.spec(), vm, 300*time.Millisecond)
		m.touch("go")
		got = b.advance(b.spec(), vm, long)
		m.ranIs("c0", "other", "edited")
		if notes := strings.Join(got.Run.Notes, "\n"); got.err != nil || !strings.Contains(notes, "another program edited the run") || got.Status() != StatusSucceeded {
			t.Errorf("%v %s, notes %q", got.err, got.Status(), notes)
		}
	})
}
