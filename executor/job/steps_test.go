package job

import (
	"log/slog"
	"strings"
	"testing"

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
	if x.Next != 3 || x.Entries != 3 || x.StepCount != 3 || x.KernelID != b.kernel.id || x.FinishedAt == nil {
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
	if err := b.kernel.Restart(t.Context(), b.kernel.id); err != nil {
		t.Fatal(err)
	}
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
	b.submit(contract.JobSubmit{JobID: "here", KernelID: b.kernel.id, Steps: steps("1")})
	wantState(t, b.end("here"), contract.JobFinished, "")
	b.submit(contract.JobSubmit{JobID: "late", KernelID: "one-before", Steps: steps("1")})
	x := b.end("late")
	wantState(t, x, contract.JobKernelLost, "")
	if got := statuses(x); got != "not_run" || x.KernelID != "one-before" {
		t.Errorf("the entries are %s, its kernel is %s", got, x.KernelID)
	}
}
