package execution

import (
	"fmt"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

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
	if err != nil {
		b.t.Fatal(err)
	}
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
