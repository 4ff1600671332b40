package job

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestStepsRunInOrderEachAsAnExecutionOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	all := steps("x = 1; print('one')", "x += 1; print('two')", "print(x)")
	all[2].SourceName = "a.ipynb cell 3"
	b.submit(contract.JobSubmit{JobID: "j", Steps: all})
	x := b.end("j")
	wantState(t, x, contract.JobFinished, "")
	for i, want := range []string{"one\n", "two\n", "2\n"} {
		e := x.Steps[i]
		if got := b.text(e.ExecutionID); got != want || e.Status != contract.StepStatus(contract.StatusSucceeded) {
			t.Errorf("entry %d is %+v and printed %q, want %q", i, e, got, want)
		}
	}
	listed := b.journal.List(10)
	if len(listed) != 3 || listed[0].Job == nil || *listed[0].Job != (contract.JobRef{JobID: "j", Index: 2}) {
		t.Errorf("the list of executions is %+v", listed)
	}
	if again := journalLogging(t, b.dir, slog.New(slog.DiscardHandler)).List(10); listed[0].SourceName != "a.ipynb cell 3" || again[0].SourceName != "a.ipynb cell 3" || again[1].SourceName != "" {
		t.Errorf("the steps are named %q, and at the next executor %q and %q", listed[0].SourceName, again[0].SourceName, again[1].SourceName)
	}
	if x.Next != 3 || x.Entries != 3 || x.StepCount != 3 || x.KernelID != b.kernel.ID || x.FinishedAt == nil {
		t.Errorf("the job is %+v", x)
	}
}

func TestHowStepsEndDecidesHowTheJobGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	with := func(all []contract.JobStep, change func(s []contract.JobStep)) []contract.JobStep {
		change(all)
		return all
	}
	for name, test := range map[string]struct {
		steps    []contract.JobStep
		state    contract.JobState
		cause    contract.JobCause
		statuses string
		reason   string
	}{
		"an exception ends it": {steps("1", "1/0", "1"), contract.JobFailed, contract.CauseStepFailed, "succeeded failed not_run", "ZeroDivisionError"},
		"it may fail":          {with(steps("1", "1/0", "1"), func(s []contract.JobStep) { s[1].MayFail = true }), contract.JobFinished, "", "succeeded failed succeeded", ""},
		"skipped if another failed": {with(steps("1", "1/0", "2", "3", "4"), func(s []contract.JobStep) {
			s[1].MayFail = true
			s[2].SkipIfFailed = []string{"a", "b"}
			s[3].SkipIfFailed = []string{"a"}
			s[4].SkipIfFailed = []string{"c", "c"}
		}), contract.JobFinished, "", "succeeded failed skipped succeeded skipped", ""},
		"a timeout ends it though it may fail": {with(steps("while True: pass", "1"), func(s []contract.JobStep) {
			s[0].MayFail, s[0].TimeoutSeconds, s[0].Attempts = true, 0.3, 3
		}), contract.JobFailed, contract.CauseStepTimedOut, "timed_out not_run", "timeout"},
		"attempts are for transient errors only": {with(steps("1/0"), func(s []contract.JobStep) { s[0].Attempts = 3 }), contract.JobFailed, contract.CauseStepFailed, "failed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			b.submit(contract.JobSubmit{JobID: id, Steps: test.steps})
			x := b.end(id)
			wantState(t, x, test.state, test.cause)
			if got := statuses(x); got != test.statuses || !strings.Contains(x.Reason, test.reason) {
				t.Errorf("the entries are %s, want %s; the reason is %q", got, test.statuses, x.Reason)
			}
		})
	}
}

func TestATransientErrorIsRetriedAndItsAttemptsAreListed(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	all := steps("tries = 0", "tries += 1\nif tries < 2: raise ConnectionResetError('peer')\nprint(tries)", "print('after')")
	all[1].Attempts = 2
	b.submit(contract.JobSubmit{JobID: "j", Steps: all})
	x := b.end("j")
	wantState(t, x, contract.JobFinished, "")
	if e := x.Steps[1]; len(e.Earlier) != 1 || b.text(e.ExecutionID) != "2\n" {
		t.Errorf("the step is %+v", e)
	}
}

func TestAKernelThatEndsLosesItsJobsAndNothingRunsInTheNext(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, settings{})
	b.submitAs("b", contract.JobSubmit{JobID: "under", Steps: steps("input()", "1")})
	b.await("under", func(x contract.Job) bool { return x.Cause == contract.CauseInput })
	b.submitAs("a", contract.JobSubmit{JobID: "before", Steps: steps("1", "2")})
	must(t, b.kernel.Restart(t.Context(), b.kernel.ID))
	for id, want := range map[string]string{"under": "kernel_restarted not_run", "before": "not_run not_run"} {
		x := b.end(id)
		wantState(t, x, contract.JobKernelLost, "")
		if got := statuses(x); got != want || x.Reason == "" {
			t.Errorf("%s: the entries are %s, want %s; the reason is %q", id, got, want, x.Reason)
		}
	}
	all := steps("import os; os.kill(os.getpid(), 9)", "1")
	all[0].MayFail, all[0].Attempts = true, 2
	b.submit(contract.JobSubmit{JobID: "killed", Steps: all})
	x := b.end("killed")
	wantState(t, x, contract.JobKernelLost, "")
	if got := statuses(x); got != "kernel_died not_run" {
		t.Errorf("the entries are %s", got)
	}
	b.submit(contract.JobSubmit{JobID: "next", Steps: steps("print(1)")})
	wantState(t, b.end("next"), contract.JobFinished, "")
}

func TestAJobRunsOnlyInTheKernelThatItNames(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	b.submit(contract.JobSubmit{JobID: "here", KernelID: b.kernel.ID, Steps: steps("1")})
	wantState(t, b.end("here"), contract.JobFinished, "")
	b.submit(contract.JobSubmit{JobID: "late", KernelID: "one-before", Steps: steps("1")})
	x := b.end("late")
	wantState(t, x, contract.JobKernelLost, "")
	if got := statuses(x); got != "not_run" || x.KernelID != "one-before" {
		t.Errorf("the entries are %s, its kernel is %s", got, x.KernelID)
	}
}

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
		must(t, err)
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
	must(t, err)
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
	must(t, b.queue.Input(t.Context(), run, contract.Input{}))
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
	must(t, err)
	wantState(t, x, contract.JobCancelled, contract.CauseDeleted)
	if got := statuses(x); got != "not_run not_run" {
		t.Errorf("its steps are %s", got)
	}
	if _, err := b.Delete(t.Context(), "holder", true); err != nil {
		t.Fatal(err)
	}
	b.end("holder")
}

// hold submits a job whose first step waits for input, and returns that one's execution.
func (b *bench) hold(id string, more ...string) (executionID string) {
	b.t.Helper()
	b.submit(contract.JobSubmit{JobID: id, Steps: steps(append([]string{"input()"}, more...)...)})
	return b.await(id, func(x contract.Job) bool { return x.Cause == contract.CauseInput }).Steps[0].ExecutionID
}

func (b *bench) release(executionID string) {
	b.t.Helper()
	must(b.t, b.queue.Input(b.t.Context(), executionID, contract.Input{}))
}

func ids(x contract.Job) string {
	var all []string
	for _, e := range x.Steps {
		all = append(all, e.StepID)
	}
	return strings.Join(all, " ")
}

func TestAPatchReplacesWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	held := b.hold("j", "print('old b')", "print('old c')")
	first := contract.JobPatch{From: "b", Steps: []contract.JobStep{
		{StepID: "c", Code: "print('new c')", SkipIfFailed: []string{"a"}}, {StepID: "b", Code: "print('new b')"},
	}}
	x, err := b.Patch("j", first)
	if err != nil || x.Revision != 1 || b.planned("j") != "a c b" {
		t.Fatalf("patched: %+v, %v", x, err)
	}
	x, err = b.Patch("j", contract.JobPatch{Revision: 1, Steps: []contract.JobStep{{StepID: "d", Code: "print('d')"}}})
	if err != nil || x.Revision != 2 || b.planned("j") != "a c b d" {
		t.Fatalf("added: %+v, %v", x, err)
	}
	for name, p := range map[string]contract.JobPatch{
		"an earlier revision":      {Revision: 1, From: "d", Steps: steps("1")},
		"a step that has begun":    {Revision: 2, From: "a", Steps: steps("1")},
		"a step that is not there": {Revision: 2, From: "x", Steps: steps("1")},
		"the first one again":      first,
	} {
		if _, err := b.Patch("j", p); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, p := range map[string]contract.JobPatch{
		"a step_id twice":           {Revision: 2, From: "d", Steps: steps("1")},
		"a later step to depend on": {Revision: 2, From: "d", Steps: []contract.JobStep{{StepID: "e", Code: "1", SkipIfFailed: []string{"d"}}}},
		"no code":                   {Revision: 2, From: "d", Steps: []contract.JobStep{{StepID: "e"}}},
	} {
		if _, err := b.Patch("j", p); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.release(held)
	x = b.end("j")
	wantState(t, x, contract.JobFinished, "")
	for i, want := range []string{"", "new c\n", "new b\n", "d\n"} {
		if got := b.text(x.Steps[i].ExecutionID); got != want {
			t.Errorf("step %s printed %q, want %q", x.Steps[i].StepID, got, want)
		}
	}
	if _, err := b.Patch("j", contract.JobPatch{Revision: 2, Steps: steps("1")}); !errors.Is(err, ErrConflict) {
		t.Errorf("after the end: %v", err)
	}
	if again := opened(t, b.dir); again.byID["j"] == nil || ids(again.byID["j"].snapshotLocked(0)) != "a c b d" {
		t.Error("the next executor does not know the patched steps")
	}
}
