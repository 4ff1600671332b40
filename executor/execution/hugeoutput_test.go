package execution

import (
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// Output over the bound of one message becomes a gap, and the run continues. The bound
// is a small part of the default; executor/jupyter tests the default.
func TestOutputOverTheMessageBoundBecomesAGapAndWhatFollowsIsKept(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const bound = 8 << 20
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{maxMessage: bound})
		for _, c := range []struct {
			code   string
			status contract.Status
			gap    int64
		}{
			{"print('x'*9_375_000); print('tail')", contract.StatusSucceeded, 5_000_000},
			{"print('tail')\nraise ValueError('x'*4_700_000)", contract.StatusFailed, 9_000_000},
		} {
			x := q.run(c.code)
			if x.Status != c.status || !strings.HasSuffix(text(x, contract.Stdout), "tail\n") || !x.End {
				t.Errorf("%.30s: %s (%s), %d bytes of text", c.code, x.Status, x.Reason, len(text(x, contract.Stdout)))
			}
			if c.status == contract.StatusFailed && x.Error == nil {
				t.Errorf("%.30s: no error", c.code)
			}
			gaps, bytes := 0, int64(0)
			for _, e := range x.Events {
				if e.Type == contract.EventGap {
					gaps, bytes = gaps+1, bytes+e.Bytes
				}
			}
			if gaps != 1 || bytes < c.gap {
				t.Errorf("%.30s: %d gaps of %d bytes, want one of %d or more", c.code, gaps, bytes, c.gap)
			}
		}
		if got := text(q.run("print('alive')"), contract.Stdout); got != "alive\n" {
			t.Errorf("the next run printed %q", got)
		}
	})
}
