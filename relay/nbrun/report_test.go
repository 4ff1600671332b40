package nbrun

import (
	"encoding/json"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

var reportStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("east", 3600))

func attempt(status contract.Status, seconds float64, failure *Failure) Attempt {
	return Attempt{ExecutionID: "execution", KernelID: "kernel", Status: status, Seconds: seconds, Error: failure}
}

// failedRun is a record with a cell of each kind.
func failedRun() *Record {
	end := reportStart.Add(time.Minute)
	return &Record{Path: "/home/ada/my `nb`.ipynb", Runtime: "default", Run: RunRecord{
		Spec: Spec{OutputPath: "/home/ada/out.ipynb"},
		ID:   "run", Status: StatusFailed, StartedAt: reportStart, FinishedAt: &end,
		Plan: []CellRecord{
			{Handle: "a1", Index: 0, Title: "load_data <b>|_now_", Source: "aa", Status: CellSucceeded, Retries: 1, Attempts: []Attempt{
				attempt(contract.StatusFailed, 1.25, &Failure{EName: "ConnectionError", EValue: "reset `by` |\x1b[31m peer\nline"}), attempt(contract.StatusSucceeded, 70, nil)}},
			{Handle: "b|2", Index: 2, Title: "x = 1/0", Status: CellFailed, Attempts: []Attempt{attempt(contract.StatusFailed, 0, &Failure{EName: "ZeroDivisionError", EValue: strings.Repeat("v", 400)})}},
			{Handle: "c3", Index: 3, Title: "use x", Status: CellSkipped, SkippedBecause: []Because{{"b|2", []string{"x", "y"}}, {"a1", nil}}},
			{Handle: "d4", Index: 5, Title: "kill", Status: CellKernelDied, Attempts: []Attempt{attempt(contract.StatusKernelDied, 2, &Failure{Reason: "the kernel *died*"})}},
			{Handle: "e5", Index: 6, Title: "frozen", Status: CellNotRun, Why: "it is tagged frozen & had succeeded"},
			{Handle: "f6", Index: 7, Title: "lost", Status: CellLost, Attempts: []Attempt{attempt("", 0, nil)}},
		},
		Notes: []string{"the kernel is new"},
	}}
}

const wantMarkdown = "# Run of my \\`nb\\`.ipynb\n\n" +
	"failed: 6 cells; 1 succeeded, 1 failed, 1 kernel died, 1 lost, 1 skipped, 1 not run in 1m13s, 1 retry.\n\n" +
	"- started: 2026-01-02 02:04:05 UTC\n" +
	"- finished: 2026-01-02 02:05:05 UTC\n" +
	"- outputs: /home/ada/out.ipynb\n" +
	"- runtime: default\n\n" +
	"| cell | id | title | status | attempts | seconds |\n" +
	"|---:|---|---|---|---:|---:|\n" +
	"| 0 | a1 | load_data \\<b\\>\\|\\_now\\_ | succeeded | 2 | 71.2 |\n" +
	"| 2 | b\\|2 | x = 1/0 | failed | 1 | 0.0 |\n" +
	"| 3 | c3 | use x | skipped | 0 | 0.0 |\n" +
	"| 5 | d4 | kill | kernel died | 1 | 2.0 |\n" +
	"| 6 | e5 | frozen | not run | 0 | 0.0 |\n" +
	"| 7 | f6 | lost | lost | 1 | 0.0 |\n" +
	"\n## Cells that did not succeed\n\n" +
	"- cell 2 (id b\\|2) failed: ZeroDivisionError: VALUE…\n" +
	"- cell 3 (id c3) skipped: it uses x, y, which the cell with id b\\|2 would have made\n" +
	"- cell 5 (id d4) kernel died: the kernel \\*died\\*\n" +
	"- cell 6 (id e5) not run: it is tagged frozen \\& had succeeded\n" +
	"- cell 7 (id f6) lost\n" +
	"\n## Notes\n\n- the kernel is new\n"

func TestReportSaysWhatHappenedToEachCell(t *testing.T) {
	r := &Run{dir: t.TempDir(), record: failedRun()}
	err := r.writeReport()
	path := r.reports
	if err != nil || path != strings.TrimSuffix(r.Path(), ".json")+".report.md" {
		t.Fatalf("%q, %v", path, err)
	}
	got, err := os.ReadFile(path)
	want := strings.ReplaceAll(wantMarkdown, "VALUE", strings.Repeat("v", 280))
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	text, err := os.ReadFile(strings.TrimSuffix(path, "md") + "json")
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil || strings.Contains(string(text), "\x1b") {
		t.Errorf("%v: %s", err, text)
	}
	if want := failedRun(); !reflect.DeepEqual(report.Cells, want.Run.Plan) || report.Success || report.Seconds != 73.25 || report.Counts[CellSkipped] != 1 || report.RunID != "run" {
		t.Errorf("%+v", report)
	}
	for _, file := range []string{path, strings.TrimSuffix(path, "md") + "json"} {
		if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	}
}

func TestSuccessNeedsNothingFailedOrSkipped(t *testing.T) {
	for status, want := range map[CellStatus]bool{
		CellSucceeded: true, CellExpectedFailure: true, CellNotRun: true,
		CellFailed: false, CellTimedOut: false, CellInterrupted: false, CellKernelDied: false, CellLost: false, CellSkipped: false,
	} {
		r := &Record{Run: RunRecord{Status: StatusSucceeded, Plan: []CellRecord{{Status: CellSucceeded}, {Status: status}}}}
		if got := r.Report().Success; got != want {
			t.Errorf("%s: success is %t", status, got)
		}
	}
	for _, status := range []Status{StatusRunning, StatusFailed, StatusPlanned} {
		if (&Record{Run: RunRecord{Status: status}}).Report().Success {
			t.Errorf("%s is a success", status)
		}
	}
}
