package op

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
