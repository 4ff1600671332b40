package transfer

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// carrier moves one piece of a file, at most partBytes long, once, with a buffer of
// partBytes. It gives what is left of the piece, also together with an error. again
// says that an earlier try of the same piece was cut.
type partFunc func(ctx context.Context, piece contract.Range, again bool, buf []byte) (left ranges, err error)

// move carries all of todo, up to inFlight pieces at once over the job. What was cut
// is carried on with until ctx ends; any other error ends all.
func (j *job) moveParts(ctx context.Context, todo ranges, carry partFunc) error {
	q := &queue{left: todo}
	g, ctx := errgroup.WithContext(ctx)
	for range min(int64(inFlight), todo.total()/partBytes+int64(len(todo))) {
		g.Go(func() error {
			for {
				piece, ok := q.next()
				if !ok || ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := j.movePiece(ctx, piece, carry); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// movePiece carries a piece until nothing of it is left.
func (j *job) movePiece(ctx context.Context, piece contract.Range, carry partFunc) error {
	buf, err := j.buffer(ctx)
	if err != nil {
		return err
	}
	defer j.free(buf)
	pause := newPause()
	again := false
	for left := (ranges{piece}); len(left) > 0; {
		first, rest := left.front(partBytes)
		of, err := carry(ctx, first, again, buf)
		if err != nil && !client.Transient(err) {
			return err
		}
		if of.total() < first.Length {
			pause.Reset()
		}
		for _, r := range of {
			rest = rest.add(r)
		}
		left, again = rest, err != nil
		if err != nil && !sleep(ctx, pause.NextBackOff()) {
			return err
		}
	}
	return nil
}

// newPause is the pause after a cut: it grows until something moves again.
func newPause() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 200 * time.Millisecond
	b.Multiplier = 2
	b.MaxInterval = 5 * time.Second
	return b
}

// wait reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// queue hands out pieces in order.
type queue struct {
	mu   sync.Mutex
	left ranges
}

func (q *queue) next() (contract.Range, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 {
		return contract.Range{}, false
	}
	var piece contract.Range
	piece, q.left = q.left.front(partBytes)
	return piece, true
}
