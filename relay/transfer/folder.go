package transfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// foldsCase: the usual file systems of these take names that differ in case for one.
const foldsCase = runtime.GOOS == "windows" || runtime.GOOS == "darwin"

// eachFile moves n files, filesAtOnce at a time, and adds what became of them to r. A
// file that fails does not end the others, unless the cause will fail them too.
func (j *job) eachFile(ctx context.Context, n int, r *Result, one func(ctx context.Context, i int) (string, moved, error)) error {
	var mu sync.Mutex
	var first error
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for i := range n {
		if inner.Err() != nil {
			break
		}
		g.Go(func() error {
			name, got, err := one(inner, i)
			mu.Lock()
			defer mu.Unlock()
			r.DoneBytes += got.done
			r.ResumedFrom += got.resumed
			if got.skipped {
				r.Skipped++
			}
			if first == nil {
				first = err
			}
			if err == nil || inner.Err() != nil {
				return nil // one that the end of the others ended did not fail
			}
			r.Failed++
			r.Notes = note(r.Notes, fmt.Sprintf("%q: %v", name, err))
			if endsAll(err) {
				return err
			}
			return nil
		})
	}
	err := g.Wait()
	r.MovedBytes = j.meter.movedBytes()
	switch {
	case ctx.Err() != nil && first != nil:
		return first // says what was wrong when time ran out
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case r.Failed > 0:
		return fmt.Errorf("%w: %d of %d; the first: %w", ErrSomeFailed, r.Failed, n, first)
	}
	return nil
}

// endsAll reports whether what failed one file will fail every other.
func endsAll(err error) bool {
	var lost *client.Error
	if errors.Is(err, ErrLocalDisk) || errors.As(err, &lost) {
		return true
	}
	switch refusalCode(err) {
	case contract.CodeDiskFull, contract.CodeUnauthorized, contract.CodeShuttingDown, contract.CodeNewInstance:
		return true
	}
	return false
}
