package tools

import (
	"context"
	"fmt"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/nbrun"
)

// The time of a call that waits in a full queue may end during a request.
func TestACallOfANotebookWhoseTimeEndsIsAnErrorOnlyIfTheVMNeverAnswered(t *testing.T) {
	late := fmt.Errorf("reading a cell: %w", &client.Error{Kind: client.KindTimeout, Message: "late", Err: context.DeadlineExceeded})
	for answered, wantNotes := range map[bool]int{true: 1, false: 0} {
		got := &NotebookRun{}
		p := got.problem(&call{}, nbrun.Outcome{Status: nbrun.StatusRunning, Answered: answered}, late)
		if failed := p != nil; failed == answered || len(got.Notes) != wantNotes {
			t.Errorf("answered: %t, problem %v, notes %q", answered, p, got.Notes)
		}
	}
}

func TestSkippedCellsAreNotDone(t *testing.T) {
	for name, c := range map[string]struct {
		counts map[nbrun.CellStatus]int
		status nbrun.Status
		want   string
	}{
		"skipped":       {map[nbrun.CellStatus]int{nbrun.CellSucceeded: 2, nbrun.CellFailed: 1, nbrun.CellSkipped: 2}, nbrun.StatusFailed, "3 of 5 cells done, 2 skipped, status failed (1 failed, 2 succeeded)\n"},
		"none skipped":  {map[nbrun.CellStatus]int{nbrun.CellSucceeded: 5}, nbrun.StatusSucceeded, "5 of 5 cells done, status succeeded (5 succeeded)\n"},
		"still running": {map[nbrun.CellStatus]int{nbrun.CellSucceeded: 1, nbrun.CellRunning: 1, nbrun.CellNotRun: 3, nbrun.CellSkipped: 1}, nbrun.StatusRunning, "1 of 6 cells done, 1 skipped, status running (3 not_run, 1 running, 1 succeeded)\n"},
	} {
		got := newNotebookRun(nbrun.Outcome{Status: c.status, Counts: c.counts}, &batchOutput{c: &call{Relay: &Relay{cfg: Config{TextLimit: 20_000}}}})
		var b words
		got.text(&b)
		if b.String() != c.want {
			t.Errorf("%s: %q", name, b.String())
		}
		if got.Counts["skipped"] != c.counts[nbrun.CellSkipped] {
			t.Errorf("%s: the counts changed: %v", name, got.Counts)
		}
	}
}
