package transfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// foldsCase: the usual file systems of these take names that differ in case for one.
const foldsCase = runtime.GOOS == "windows" || runtime.GOOS == "darwin"

// tally adds up what became of a folder's files.
type tally struct {
	mu    sync.Mutex
	r     *Result
	first error

	renamed renames
}

// file counts one file. A file that fails does not end the others, unless the cause
// will fail them too: then that is returned. ctx ends with the others.
func (t *tally) add(ctx context.Context, name string, got fileResult, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.DoneBytes += got.done
	t.r.ResumedFrom += got.resumed
	if got.skipped {
		t.r.Skipped++
	}
	if t.first == nil {
		t.first = err
	}
	if err == nil || ctx.Err() != nil {
		return nil // one that the end of the others ended did not fail
	}
	t.r.Failed++
	t.r.Notes = addNote(t.r.Notes, fmt.Sprintf("%q: %v", name, err))
	if affectsAll(err) {
		return err
	}
	return nil
}

// named notes what a file of the folder top is called on the laptop.
func (t *tally) addRenamed(remote contract.File, top, local string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renamed.add(remote, top, local)
}

// outcome is how the whole went that ended with err. It completes the result's notes.
func (t *tally) outcome(ctx context.Context, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Notes = append(t.r.Notes, t.renamed.notes()...)
	switch {
	case ctx.Err() != nil && t.first != nil:
		return t.first // says what was wrong when time ran out
	case ctx.Err() != nil && err == nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case t.r.Failed > 0:
		return fmt.Errorf("%w: %d of %d; the first: %w", ErrSomeFailed, t.r.Failed, t.r.Files, t.first)
	}
	return nil
}

// endsAll reports whether what failed one file will fail every other.
func affectsAll(err error) bool {
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
