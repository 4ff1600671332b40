package nbrun

import (
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

var reportStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("east", 3600))

func attempt(status contract.Status, seconds float64, failure *Failure) *Attempt {
	return &Attempt{ExecutionID: "execution", KernelID: "kernel", Status: status, Seconds: seconds, Error: failure}
}

// failedRun is a record with a cell of each kind.
func failedRun() *Record {
	end := reportStart.Add(time.Minute)
	return &Record{Path: "/home/ada/my `nb`.ipynb", Runtime: "default", Run: RunRecord{
		Spec: Spec{OutputPath: "/home/ada/out.ipynb"},
		ID:   "run", Status: StatusFailed, StartedAt: reportStart, FinishedAt: &end,
		Plan: []CellRecord{
			{Handle: "a1", Index: 0, Title: "load_data <b>|_now_", Source: "aa", Status: CellSucceeded, Attempts: 2, Last: attempt(contract.StatusSucceeded, 70, nil)},
			{Handle: "b|2", Index: 2, Title: "x = 1/0", Status: CellFailed, Attempts: 1, Last: attempt(contract.StatusFailed, 0, &Failure{EName: "ZeroDivisionError", EValue: strings.Repeat("v", 400)})},
			{Handle: "c3", Index: 3, Title: "use x", Status: CellSkipped, Why: (&need{"b|2", []string{"x", "y"}}).why()},
			{Handle: "d4", Index: 5, Title: "kill", Status: CellKernelDied, Attempts: 1, Last: attempt(contract.StatusKernelDied, 2, &Failure{Reason: "the kernel *died*"})},
			{Handle: "e5", Index: 6, Title: "frozen", Status: CellNotRun, Why: "it is tagged frozen & had succeeded"},
			{Handle: "f6", Index: 7, Title: "lost", Status: CellLost, Attempts: 1, Last: attempt("", 0, nil)},
		},
		Notes: []string{"the kernel is new"},
	}}
}

const (
	wantSummary  = "failed: 6 cells; 1 succeeded, 1 failed, 1 kernel died, 1 lost, 1 skipped, 1 not run in 1 min 12 s"
	wantProblems = "cell 2 (id b|2) failed: ZeroDivisionError: VALUE…\n" +
		"cell 3 (id c3) skipped: it uses x, y, which the cell with id b|2 would have made\n" +
		"cell 5 (id d4) kernel died: the kernel *died*\n" +
		"cell 6 (id e5) not run: it is tagged frozen & had succeeded\n" +
		"cell 7 (id f6) lost\n"
)

func TestReportSaysWhatHappenedToEachCell(t *testing.T) {
	run, problems := &failedRun().Run, ""
	for _, c := range run.Plan {
		if problem := c.Problem(); problem != "" {
			problems += problem + "\n"
		}
	}
	if run.Summary() != wantSummary || problems != strings.ReplaceAll(wantProblems, "VALUE", strings.Repeat("v", 280)) {
		t.Errorf("%s\n%s", run.Summary(), problems)
	}
}

func TestSuccessNeedsNothingFailedOrSkipped(t *testing.T) {
	for status, want := range map[CellStatus]bool{
		CellSucceeded: true, CellExpectedFailure: true, CellNotRun: true,
		CellFailed: false, CellTimedOut: false, CellInterrupted: false, CellKernelDied: false, CellLost: false, CellSkipped: false,
	} {
		r := &Record{Run: RunRecord{Status: StatusSucceeded, Plan: []CellRecord{{Status: CellSucceeded}, {Status: status}}}}
		if got := r.Run.Succeeded(); got != want {
			t.Errorf("%s: success is %t", status, got)
		}
	}
	for _, status := range []Status{StatusRunning, StatusFailed, StatusPlanned} {
		if (&RunRecord{Status: status}).Succeeded() {
			t.Errorf("%s is a success", status)
		}
	}
}
