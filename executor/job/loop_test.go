package job

import (
	"strings"
	"testing"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

func TestALoopRunsByItsCondition(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	for name, test := range map[string]struct {
		code, again string
		rounds      int
		state       contract.JobState
		cause       contract.JobCause
	}{
		"until it is False":    {"i += 1", "i < 3", 3, contract.JobFinished, ""},
		"past the most rounds": {"i += 1", "i < 6", 5, contract.JobFailed, contract.CauseMaxRounds},
		"a number":             {"i += 1", "3 - i", 1, contract.JobFailed, contract.CauseAgainUnknown},
		"an exception":         {"i += 1", "undefined", 1, contract.JobFailed, contract.CauseAgainUnknown},
		"a round that raises":  {"i += 1; 1/(3-i)", "True", 3, contract.JobFailed, contract.CauseStepFailed},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			b.submit(contract.JobSubmit{JobID: id, Steps: steps("i = 0"), Loop: &contract.JobLoop{Code: test.code, Again: test.again, MaxRounds: 5, Unstored: true}})
			x := b.end(id)
			wantState(t, x, test.state, test.cause)
			if got := x.Entries - x.StepCount; got != test.rounds {
				t.Errorf("it has %d rounds, want %d", got, test.rounds)
			}
		})
	}
}

// catching is a round that tells when it runs, catches the interrupt and ends well.
const catching = `import time
try:
  print('on', flush=True)
  time.sleep(3600)
except KeyboardInterrupt: caught = True`

func (b *bench) awaitOutput(executionID string) {
	b.t.Helper()
	if _, err := b.journal.Read(b.t.Context(), executionID, journal.ReadRequest{Wait: time.Minute}); err != nil {
		b.t.Fatal(err)
	}
}

// begunRound returns the execution of the job's first round, once that has printed something.
func (b *bench) begunRound(id string) (executionID string) {
	b.t.Helper()
	x := b.await(id, func(x contract.Job) bool { return x.Next > x.StepCount })
	executionID = x.Steps[x.StepCount].ExecutionID
	b.awaitOutput(executionID)
	return executionID
}

func TestAnInterruptEndsTheJobWhateverTheCodeMakesOfIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	for name, code := range map[string]string{
		"caught": catching,
		"not":    "import time\nprint('on', flush=True)\ntime.sleep(3600)",
	} {
		b.submit(contract.JobSubmit{JobID: "loop-" + name, Loop: &contract.JobLoop{Code: code, Again: "True", MaxRounds: 5}})
		run := b.begunRound("loop-" + name)
		if _, err := b.queue.Interrupt(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		x := b.end("loop-" + name)
		wantState(t, x, contract.JobCancelled, contract.CauseInterrupted)
		if x.Entries != 1 {
			t.Errorf("%s: the loop went on for %d rounds", name, x.Entries)
		}

		all := steps(code, "1")
		all[0].MayFail, all[0].Attempts = true, 3
		b.submit(contract.JobSubmit{JobID: "step-" + name, Steps: all})
		b.await("step-"+name, func(x contract.Job) bool { return x.Next > 0 })
		x, err := b.Read(t.Context(), "step-"+name, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.awaitOutput(x.Steps[0].ExecutionID)
		if _, err := b.queue.Interrupt(t.Context(), x.Steps[0].ExecutionID); err != nil {
			t.Fatal(err)
		}
		x = b.end("step-" + name)
		wantState(t, x, contract.JobCancelled, contract.CauseInterrupted)
		if x.Steps[1].Status != contract.StepNotRun {
			t.Errorf("%s: the entries are %s", name, statuses(x))
		}
	}
}

func TestAJobIsDeletedInTheMiddleOfARound(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	loop := func(id, code string) {
		b.submit(contract.JobSubmit{JobID: id, Loop: &contract.JobLoop{Code: code, Again: "True", MaxRounds: 5}})
	}
	loop("interrupted", catching)
	b.begunRound("interrupted")
	x, err := b.Delete(t.Context(), "interrupted", true)
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, x, contract.JobCancelled, contract.CauseDeleted)
	if got := statuses(x); got != "interrupted" {
		t.Errorf("the rounds are %s", got)
	}

	loop("goes-on", "print('on', flush=True); input()")
	run := b.begunRound("goes-on")
	b.await("goes-on", func(x contract.Job) bool { return x.Cause == contract.CauseInput })
	for range 2 { // it may be repeated
		if x, err = b.Delete(t.Context(), "goes-on", false); err != nil || x.State.Ended() {
			t.Fatalf("while the round runs: %+v, %v", x, err)
		}
	}
	if err := b.queue.Input(t.Context(), run, contract.Input{}); err != nil {
		t.Fatal(err)
	}
	x = b.end("goes-on")
	wantState(t, x, contract.JobCancelled, contract.CauseDeleted)
	if got := statuses(x); got != "succeeded" {
		t.Errorf("the rounds are %s", got)
	}
	if again, err := b.Delete(t.Context(), "goes-on", true); err != nil || again.State != contract.JobCancelled {
		t.Errorf("deleted after its end: %+v, %v", again, err)
	}
}

func TestAJobIsDeletedBeforeItBegins(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	b.submitAs("holder", contract.JobSubmit{JobID: "holder", Steps: steps("input()")})
	held := b.await("holder", func(x contract.Job) bool { return x.Cause == contract.CauseInput })
	x := b.submit(contract.JobSubmit{JobID: "j", Steps: steps("1", "2")})
	if x.State != contract.JobQueued || x.Behind == nil || x.Behind.ExecutionID != held.Steps[0].ExecutionID {
		t.Errorf("behind another one it is %+v", x)
	}
	x, err := b.Delete(t.Context(), "j", false)
	if err != nil {
		t.Fatal(err)
	}
	wantState(t, x, contract.JobCancelled, contract.CauseDeleted)
	if got := statuses(x); got != "not_run not_run" || b.queue.Leave(b.byID["j"]) {
		t.Errorf("its steps are %s", got)
	}
	if _, err := b.Delete(t.Context(), "holder", true); err != nil {
		t.Fatal(err)
	}
	b.end("holder")
}
