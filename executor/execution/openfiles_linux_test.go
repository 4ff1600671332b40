package execution

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// openLogs counts the logs of executions that are open in the temporary folders of t.
func openLogs(t *testing.T) (n int) {
	t.Helper()
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(descriptors) == 0 {
		t.Fatalf("%d descriptors, %v", len(descriptors), err)
	}
	for _, d := range descriptors {
		if target, _ := os.Readlink(d); strings.HasPrefix(filepath.Base(target), "events-") && strings.Contains(target, t.Name()) {
			n++
		}
	}
	return n
}

// A run that is cancelled in the queue, in each of the ways, leaves no log open: thousands of
// them used up all descriptors.
func TestCancelledRunsLeaveNoLogOpen(t *testing.T) {
	before := openLogs(t)
	q := unstarted(t)
	const each = 20
	for n := range each {
		name := fmt.Sprint("asked", n)
		q.journal.MakeSpare()
		q.add(t, name, "a")
		if id := q.pending[0].ID; !q.cancel(id, "") {
			t.Fatalf("%s did not wait", id)
		}
	}
	for n := range each {
		q.journal.MakeSpare()
		q.add(t, fmt.Sprint("all", n), "a")
	}
	if open := openLogs(t); open < before+each {
		t.Fatalf("%d logs of %d runs that wait are open: this test proves nothing", open-before, each)
	}
	waiting := q.pending
	q.cancelAll("the kernel died")
	for _, s := range waiting {
		if s.Status() != contract.StatusCancelled {
			t.Errorf("%s is %s", s.ID, s.Status())
		}
	}
	if open := openLogs(t); open > before {
		t.Errorf("%d logs are open", open-before)
	}
}
