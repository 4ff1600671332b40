package nbrun

import (
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// A command for a person answers the question and goes on with the same run: what the cell printed
// before is not printed again.
func TestWhatACellPrintedBeforeItsQuestionStays(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "print('before')\nname = input('Who? ')\nprint(name)")
	r, err := Open(b.dir, b.spec())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	asked, err := r.Advance(t.Context(), m, Options{Until: time.Now().Add(long)})
	if err != nil || asked.Prompt == nil {
		t.Fatalf("%v %+v", err, asked)
	}
	if _, err := m.Input(t.Context(), asked.Execution.ExecutionID, contract.Input{Text: "Ada", Offset: &asked.Prompt.Offset}); err != nil {
		t.Fatal(err)
	}
	ended, err := r.Advance(t.Context(), m, Options{Until: time.Now().Add(long)})
	if err != nil || ended.Status != StatusSucceeded {
		t.Fatalf("%v %+v", err, ended)
	}
	text := b.outputs("c0") // the question comes on another channel, before the line or after it
	if strings.Count(text, "before\n") != 1 || strings.Count(text, "Who? ") != 1 || !strings.HasSuffix(text, "Ada\n") {
		t.Errorf("it shows %q", text)
	}
}

// An answer may have the prompt and still say that the cell runs.
func TestAPromptIsKeptUntilTheStatusSaysThatTheCellWaits(t *testing.T) {
	var rd reading
	rd.see(contract.Execution{ExecutionID: "e", Status: contract.StatusRunning, Events: []contract.Event{{Type: contract.EventInputRequest, Prompt: "Who? "}}})
	if rd.prompt() != nil {
		t.Error("it waits before the status says so")
	}
	rd.see(contract.Execution{ExecutionID: "e", Status: contract.StatusWaitingForInput})
	if p := rd.prompt(); p == nil || p.Prompt != "Who? " {
		t.Errorf("the prompt is %v", p)
	}
}

// Outputs stay out of a notebook that they would make too long, and their place says how to read them.
func TestANotebookDoesNotGrowWithoutBound(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "print('x' * 10_000)", "print('y' * 10_000)", "print('short')")
	r, err := Open(b.dir, b.spec())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.outputs.most = 20_000
	ended, err := r.Advance(t.Context(), m, Options{Until: time.Now().Add(long)})
	if err != nil || ended.Status != StatusSucceeded {
		t.Fatalf("%v %+v", err, ended)
	}
	if text := b.outputs("c0"); len(text) != 10_001 {
		t.Errorf("the first cell shows %.100q", text)
	}
	left, execution := b.outputs("c1"), r.run.Plan[1].Last.ExecutionID
	if want := "[The outputs of this cell are left out here, because the notebook would have over 20000 bytes. Run " + execution + " has them on the VM: `colab-relay logs " + execution + "` prints them.]\n"; left != want {
		t.Errorf("the second cell shows %.300q, want %q", left, want)
	}
	if text := b.outputs("c2"); text != "short\n" {
		t.Errorf("the third cell shows %q", text)
	}
}

// The executor ends after the cell whose variables were saved: they are restored, and the cells up
// to it do not run again.
func TestInANewKernelTheRunContinuesAfterTheSavedState(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	old := start(t, oldStack(t), dir)
	b := write(t, src(says("c0")+"\nx = 20"), src("save-state| "+says("c1")+"\nx += 1"), src(says("c2")+slow), src(says("c3")+"\nprint(2 * x)"))
	s := b.spec()
	s.StateName = "state of the test"
	states := func(m *machine) func(*Options) {
		return func(o *Options) { o.States = m.Client }
	}
	b.reach(old, s, old, "c2", states(old))
	old.Kill()
	again := start(t, oldStack(t), dir)
	again.touch("go")
	got := b.advance(s, again, long, states(again))
	if got.err != nil || got.Status() != StatusSucceeded {
		t.Fatalf("%v %s %s %q", got.err, got.Status(), got.cells(), got.Outcome.Notes)
	}
	again.ranIs("c0", "c1", "c2", "c2", "c3")
	if b.outputs("c3") != "42\n" {
		t.Errorf("it shows %q", b.outputs("c3"))
	}
	if got.Run.Saved == nil || got.Run.handle(got.Run.Saved.Cell) != "c1" {
		t.Errorf("saved: %+v", got.Run.Saved)
	}
}
