package runlist

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/history"
	"colabrelay/shared/contract"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at returns noon and some minutes.
func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

func kept(id, runtime, instance string, minutes int, status contract.Status) history.Run {
	return history.Run{
		Execution: contract.Execution{ExecutionID: id, Status: status, CreatedAt: noon},
		Head:      history.Head{Runtime: runtime, InstanceID: instance, Recorded: at(minutes)}, Code: "\n  code of " + id + "\nmore",
	}
}

func TestARunOfAnExecutorWithANewInstanceIDIsListedOnce(t *testing.T) {
	runs := []history.Run{kept("0123456789", "work", "before", 1, contract.StatusRunning), kept("9876543210", "else", "before", 0, contract.StatusRunning)}
	found := []contract.Execution{{ExecutionID: "0123456789", Status: contract.StatusLost}, {ExecutionID: "9876543210", Status: contract.StatusLost}}
	all := Merge(runs, []VM{{"work", "after", found}}, at(2))
	var lines []string
	for _, e := range all {
		lines = append(lines, fmt.Sprintf("%s %s %s %t %t", e.ExecutionID, e.Runtime, e.Status, e.OnVM, e.Kept))
	}
	want := []string{"0123456789 work lost true true", "9876543210 else running false true", "9876543210 work lost true false"}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func TestMergeListsEachRunOnceTheNewestFirst(t *testing.T) {
	internal := kept("batch", "work", "vm", 3, contract.StatusSucceeded)
	internal.Internal = true
	runs := []history.Run{
		kept("same", "work", "vm", 1, contract.StatusRunning), kept("gone", "work", "old", 0, contract.StatusRunning),
		internal, kept("done", "work", "vm", 2, contract.StatusSucceeded),
	}
	started, finished := at(0), at(2)
	vms := []VM{{"work", "vm", []contract.Execution{
		{ExecutionID: "same", Status: contract.StatusSucceeded, StartedAt: &started, FinishedAt: &finished, CodePreview: "cut"},
		{ExecutionID: "done", Status: contract.StatusRunning}, // an executor that lies about the past
		{ExecutionID: "foreign", Status: contract.StatusRunning, CreatedAt: at(9), StartedAt: &finished, CodePreview: "x = 1", SourceName: "a.ipynb cell 3"},
		{ExecutionID: "theirs", Status: contract.StatusRunning, CreatedAt: at(8), CodePreview: "# chunked run \"a\": round"},
	}}, {"other", "vm2", []contract.Execution{{ExecutionID: "same", Status: contract.StatusFailed, CreatedAt: at(-5), CodePreview: strings.Repeat("ü", 200)}}}}
	vms = append(vms, VM{"alias", "vm2", vms[1].Executions})
	var lines []string
	for _, e := range Merge(runs, vms, at(10)) {
		seconds := -1.0
		if e.ExecutionTimeSec != nil {
			seconds = *e.ExecutionTimeSec
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %g %.12s vm=%t kept=%t internal=%t unsure=%t", e.ExecutionID, e.Runtime, e.Status, seconds, e.CodePreview, e.OnVM, e.Kept, e.Internal, e.Unsure()))
	}
	want := []string{
		"foreign work running 480 x = 1 vm=true kept=false internal=false unsure=false",
		"theirs work running -1 # chunked ru vm=true kept=false internal=true unsure=false",
		"batch work succeeded -1 code of batc vm=false kept=true internal=true unsure=false",
		"done work succeeded -1 code of done vm=true kept=true internal=false unsure=false",
		"same work succeeded 120 code of same vm=true kept=true internal=false unsure=false",
		"gone work running -1 code of gone vm=false kept=true internal=false unsure=true",
		"same other failed -1 üüüüüüüüüüüü vm=true kept=false internal=false unsure=false",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	some := WithoutInternal(Merge(runs, vms, at(10)))
	if len(some) != 7 || some[0].Name != "a.ipynb cell 3" {
		t.Errorf("%+v", some)
	}
}

func TestChoose(t *testing.T) {
	batch := kept("batch", "work", "new", 6, contract.StatusSucceeded)
	batch.Internal = true
	runs := []history.Run{
		batch, kept("e5", "work", "new", 5, contract.StatusSucceeded), kept("e4", "home", "h", 4, contract.StatusSucceeded),
		kept("e3", "work", "new", 3, contract.StatusSucceeded), kept("e2", "work", "old", 2, contract.StatusSucceeded), kept("e1", "home", "h", 1, contract.StatusSucceeded),
	}
	for name, test := range map[string]struct {
		choice Selection
		want   string
	}{
		"the last VM":     {Selection{}, "e3 e5"},
		"of a runtime":    {Selection{Runtime: "home"}, "e1 e4"},
		"the last two":    {Selection{Last: 2}, "e3 e5"},
		"since, the last": {Selection{Since: at(2), Last: 1, Runtime: "work"}, "e5"},
		"by id":           {Selection{IDs: []string{"e4", "batch", "e1"}}, "e1 e4 batch"},
	} {
		var ids []string
		for _, r := range test.choice.Choose(runs) {
			ids = append(ids, r.ExecutionID)
		}
		if got := strings.Join(ids, " "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if left := OfRuntime(runs, "home"); len(left) != 2 || len(runs) != 6 || runs[5].ExecutionID != "e1" {
		t.Errorf("%d runs of home", len(left))
	}
}

func TestFindPrefersTheWholeID(t *testing.T) {
	runs := []contract.Execution{{ExecutionID: "ab1", CodePreview: "x\x1b[2J"}, {ExecutionID: "ab"}, {ExecutionID: "c"}}
	for prefix, want := range map[string]error{"a": ErrAmbiguous, "ab": nil, "ab1": nil, "c": nil, "d": ErrNoSuchRun, "": ErrNoSuchRun, "ab12": ErrNoSuchRun} {
		e, err := Find(runs, prefix)
		if !errors.Is(err, want) || err == nil && e.ExecutionID != prefix {
			t.Errorf("%q finds %q, %v, want %v", prefix, e.ExecutionID, err, want)
		}
		if want == ErrAmbiguous && (!strings.Contains(err.Error(), "\n  ab  ") || strings.Contains(err.Error(), "\x1b")) {
			t.Error(err)
		}
	}
}

func TestABatchIsInternalButNoMachinery(t *testing.T) {
	for code, want := range map[string][2]bool{
		"# colab-relay: save state": {true, true}, "# chunked run \"a\": round": {true, false},
		"# install_packages x": {}, "x = 1 # colab-relay: ": {}, "": {},
	} {
		if got := [2]bool{IsInternal(code), IsMachinery(code)}; got != want {
			t.Errorf("%q: %v, want %v", code, got, want)
		}
	}
}
