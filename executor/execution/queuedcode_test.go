package execution

import (
	"errors"
	"strings"
	"testing"
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
