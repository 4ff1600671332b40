package execution

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func TestTheCodeOfThousandsOfSmallRunsIsCounted(t *testing.T) {
	t.Parallel()
	const many = 4096
	q := unstarted(t)
	q.cfg.Limits.Queue = 2 * many
	small := &submission{caller: "a", code: strings.Repeat("x", maxQueuedCode/many)}
	for n := range many {
		if err := q.fullLocked("a", len(small.code)); err != nil {
			t.Fatalf("after %d: %v", n, err)
		}
		q.pending = append(q.pending, small)
	}
	if err := q.fullLocked("a", 1); !errors.Is(err, ErrQueuedCode) {
		t.Errorf("a byte past the bound: %v", err)
	}
	q.pending = q.pending[1:]
	if err := q.fullLocked("a", len(small.code)); err != nil {
		t.Errorf("after one of them left the queue: %v", err)
	}
}

// sized submits code of n bytes that waits for input when it runs.
func (b *bench) sized(caller string, n int) (id string, err error) {
	const code = "input() #"
	return b.Submit(caller, contract.Submit{
		RequestID: fmt.Sprint("sized", b.ids.Add(1)), Code: (code + strings.Repeat("x", max(0, n-len(code))))[:n],
	})
}

// full checks that not one byte more of this caller's code fits into the queue.
func (b *bench) full(caller, when string) {
	b.t.Helper()
	if _, err := b.sized(caller, 1); !errors.Is(err, ErrQueuedCode) {
		b.t.Errorf("a byte more %s: %v", when, err)
	}
}

// fill submits n codes of size bytes each, all of which fit.
func (b *bench) fill(caller string, n, size int) (ids []string) {
	b.t.Helper()
	for i := range n {
		id, err := b.sized(caller, size)
		if err != nil {
			b.t.Fatalf("code %d of %d: %v", i+1, n, err)
		}
		ids = append(ids, id)
	}
	return ids
}
