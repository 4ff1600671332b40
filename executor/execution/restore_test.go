package execution

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// A run whose start can't be saved does not run: the next executor would report that it
// never started. Everything else that can't be saved is saved later.
func TestStateThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	q := newBench(t, stacks.Old(t), settings{dir: dir})
	q.run("n = 0")
	running := q.submit("input()", 0)
	wantStatus(t, q.settle(running), contract.StatusWaitingForInput)
	queued := q.submit("n += 1", 0)
	states := filepath.Join(dir, "states.log")
	must(t, os.Remove(states))
	must(t, os.MkdirAll(filepath.Join(states, "in the way"), 0o700))
	must(t, q.Input(t.Context(), running, contract.Input{}))
	wantStatus(t, q.settle(running), contract.StatusSucceeded)
	x := q.settle(queued)
	if x.Status != contract.StatusFailed || !strings.Contains(x.Reason, "did not run") {
		t.Errorf("the queued one: %s, %q", x.Status, x.Reason)
	}
	must(t, os.RemoveAll(states))
	within.Until(t, "the journal is flushed", func() bool { return !q.journal.NeedsFlush() })
	if got := text(q.run("print(n)"), contract.Stdout); got != "0\n" {
		t.Errorf("n = %s", got)
	}
	q.stop()
	again := reopened(t, dir)
	got := map[string]contract.Status{running: read(t, again, running).Status, queued: read(t, again, queued).Status}
	want := map[string]contract.Status{running: contract.StatusSucceeded, queued: contract.StatusFailed}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("on disk (-want +got):\n%s", diff)
	}
}

// trace prints all traces of stored cells. The code below displays no values, because
// IPython keeps those in _ and Out even if the cell is not stored.
const trace = `
import sys as _s
_sh = get_ipython()
print([_sh.execution_count, list(In), dict(Out), repr(_), repr(__), _sh.history_manager.input_hist_raw[-1]])
`

func (b *bench) unstored(code string) contract.Execution {
	b.t.Helper()
	id, err := b.Submit("", contract.Submit{RequestID: fmt.Sprint("unstored-", b.ids.Add(1)), Code: code, Unstored: true})
	must(b.t, err)
	return b.settle(id)
}

func TestUnstoredRunLeavesNoTrace(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{ownKernel: true})
		q.run("'before'")
		before := text(q.unstored(trace), contract.Stdout)
		for name, code := range map[string]string{
			"a statement": "left = 1\nprint('said')",
			"an error":    "print('said')\n1/0",
		} {
			x := q.unstored(code)
			if text(x, contract.Stdout) != "said\n" || !x.End || x.ExecutionCount != 0 {
				t.Errorf("%s: execution = %+v", name, x)
			}
			if after := text(q.unstored(trace), contract.Stdout); after != before || after == "" {
				t.Errorf("%s left a trace:\n%s\n%s", name, before, after)
			}
		}
		if x := q.run("left"); x.ExecutionCount != 2 {
			t.Errorf("the next stored run has number %d, error %+v", x.ExecutionCount, x.Error)
		}
	})
}
