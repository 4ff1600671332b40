package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"colabrelay/shared/contract"
)

// tally counts what all workers do. It is safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	calls   int // of tools
	now     int // calls at this moment
	most    int // calls at the same time
	busy    int // answers with kernel_busy
	refused map[contract.Code]int
	took    map[string][]time.Duration // by operation, without those that were refused
}

func newTally() *tally {
	return &tally{refused: map[contract.Code]int{}, took: map[string][]time.Duration{}}
}

// begin counts a call until the returned function is called with the code of its answer.
func (t *tally) begin() (end func(contract.Code)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls, t.now = t.calls+1, t.now+1
	t.most = max(t.most, t.now)
	return func(code contract.Code) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.now--
		switch code {
		case contract.CodeKernelBusy:
			t.busy++
		case contract.CodeQueueFull, contract.CodeRateLimited:
			t.refused[code]++
		}
	}
}

// did counts an operation that was not refused.
func (t *tally) did(o operation, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took[o.name] = append(t.took[o.name], took)
}

func (t *tally) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "operation\ttimes\tmedian s\tlongest s\t")
	for _, name := range slices.Sorted(maps.Keys(t.took)) {
		took := slices.Sorted(slices.Values(t.took[name]))
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%.2f\t\n", name, len(took), took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
	}
	table.Flush()
	fmt.Fprintf(out, "%d calls, up to %d at a time; answers: %d queue_full, %d rate_limited, %d kernel_busy\n",
		t.calls, t.most, t.refused[contract.CodeQueueFull], t.refused[contract.CodeRateLimited], t.busy)
}

// Limits of the executor, below which it must not refuse anything.
const (
	placesInQueue = 64   // executions that wait, and as many long polls
	burst         = 6000 // requests with one secret
)

// honest fails if calls were refused although they cannot have reached a limit.
func (w *world) honest() (err error) {
	requests := w.wire.Traffic().Requests
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	if n := w.tally.refused[contract.CodeQueueFull]; n > 0 && w.tally.most < placesInQueue {
		err = fmt.Errorf("%d answers were queue_full, but at most %d calls were made at the same time", n, w.tally.most)
	}
	if n := w.tally.refused[contract.CodeRateLimited]; n > 0 && w.tally.most < placesInQueue && requests < burst {
		err = errors.Join(err, fmt.Errorf("%d answers were rate_limited, but only %d requests were sent, and at most %d calls were made at the same time", n, requests, w.tally.most))
	}
	return err
}
