package transfer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// partFunc transfers one piece of a file, at most contract.MaxFilePart long, in one
// attempt. It returns what is left of the piece, with or without an error. again says that
// an earlier attempt at the same piece was interrupted.
type partFunc func(ctx context.Context, piece contract.Range, again bool) (left ranges.Set, err error)

// moveParts transfers all of todo, up to inFlight pieces of the job at the same time.
// Interrupted pieces are resumed as long as bytes of any piece arrive, and for client.Patience
// after the last; any other error ends all of them.
func (j *job) moveParts(ctx context.Context, todo ranges.Set, transfer partFunc) error {
	q := &queue{left: todo}
	g, ctx := errgroup.WithContext(ctx)
	for range min(int64(inFlight), todo.Total()/partBytes+int64(len(todo))) {
		g.Go(func() error {
			for {
				piece, ok := q.next()
				if !ok || ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := j.movePiece(ctx, piece, transfer); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// movePiece transfers a piece until nothing of it is left.
func (j *job) movePiece(ctx context.Context, piece contract.Range, transfer partFunc) error {
	done, err := j.slot(ctx)
	if err != nil {
		return err
	}
	defer done()
	pause := client.NewBackOff()
	again := false
	for left := (ranges.Set{piece}); len(left) > 0; {
		first, rest := left.Front(contract.MaxFilePart)
		unsent, err := transfer(ctx, first, again)
		if err != nil && !client.Transient(err) {
			return err
		}
		if unsent.Total() < first.Length {
			pause.Reset()
			j.silence.End()
		} else if err != nil && j.silence.Failed() >= client.Patience {
			return fmt.Errorf("%w: %w", ErrSilent, err)
		}
		for _, r := range unsent {
			rest = rest.Add(r)
		}
		left, again = rest, err != nil
		if err == nil {
			continue
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// queue hands out pieces in order.
type queue struct {
	mu   sync.Mutex
	left ranges.Set
}

func (q *queue) next() (contract.Range, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 {
		return contract.Range{}, false
	}
	// The last pieces are smaller, so that all workers end at about the same time.
	size := int64(partBytes)
	if q.left.Total() > inFlight*partBytes {
		size = contract.MaxFilePart
	}
	var piece contract.Range
	piece, q.left = q.left.Front(size)
	return piece, true
}
