package transfer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// meter adds up the progress of all files of a job and reports it.
type meter struct {
	report func(Progress)
	moved  atomic.Int64 // payload bytes that were sent or received

	mu  sync.Mutex
	now Progress
}

func (m *meter) plan(files int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Files, m.now.Total = files, bytes
}

// add counts n more bytes of a file at its destination, whether this call moved them or
// not. n is negative for bytes that turned out to be wrong.
func (m *meter) add(name string, stage Stage, n int64) {
	m.update(func() { m.now.Name, m.now.Stage, m.now.Done = name, stage, m.now.Done+n })
}

// leave counts bytes that leave this computer. Nobody has confirmed that they arrived.
func (m *meter) leave(n int) { m.update(func() { m.now.Left += int64(n) }) }

// checker returns a function to call with the size of each piece of a file that was hashed.
func (m *meter) checker(name string, stage Stage) func(n int64) {
	var sum int64
	return func(n int64) {
		sum += n
		m.hashed(name, stage, sum)
	}
}

// hashed reports that n bytes of a file were hashed.
func (m *meter) hashed(name string, stage Stage, n int64) {
	m.update(func() { m.now.Name, m.now.Stage, m.now.Hashed = name, stage, n })
}

// finish counts a file that succeeded or failed.
func (m *meter) finish(name string) { m.update(func() { m.now.Name, m.now.File = name, m.now.File+1 }) }

func (m *meter) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	if m.report != nil {
		m.report(m.now)
	}
}

// foldsCase says whether the system's usual file systems ignore case in names.
const foldsCase = runtime.GOOS == "windows" || runtime.GOOS == "darwin"

// tally adds up the outcomes of a folder's files.
type tally struct {
	mu    sync.Mutex
	r     *Result
	first error

	renamed renames
}

// add counts one file; name is quoted, for a note. It returns the file's error only if that will affect all others;
// any other error fails just this file. ctx is that of the whole folder.
func (t *tally) add(ctx context.Context, name string, got fileResult, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.DoneBytes += got.done
	t.r.ResumedFrom += got.resumed
	switch {
	case got.skipped:
		t.r.Skipped++
	case err == nil && got.replacesModule():
		t.r.Replaced++
	}
	if err == nil && got.note != "" {
		t.r.Notes = addNote(t.r.Notes, got.note)
	}
	if t.first == nil {
		t.first = err
	}
	if err == nil || ctx.Err() != nil {
		return nil // a file that was cancelled with the others did not fail
	}
	t.r.Failed++
	t.r.Notes = addNote(t.r.Notes, fmt.Sprintf("%s: %v", name, err))
	if affectsAll(err) {
		return err
	}
	return nil
}

// addRenamed records the local name of a file of the folder top.
func (t *tally) addRenamed(remote contract.File, top, local string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renamed.add(remote, top, local)
}

// outcome returns the error of the whole folder, whose last step ended with err, and
// completes the result's notes.
func (t *tally) outcome(ctx context.Context, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Notes = append(t.r.Notes, t.renamed.notes()...)
	switch {
	case ctx.Err() != nil && t.first != nil:
		return t.first // explains more than that the time was over
	case ctx.Err() != nil && err == nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case t.r.Failed > 0:
		return fmt.Errorf("%w: %d of %d; the first error: %w", ErrSomeFailed, t.r.Failed, t.r.Files, t.first)
	}
	return nil
}

// affectsAll reports whether an error of one file will occur with every other one too.
func affectsAll(err error) bool {
	if _, lost := errors.AsType[*client.Error](err); lost || errors.Is(err, ErrLocalDisk) {
		return true
	}
	switch refusalCode(err) {
	case contract.CodeDiskFull, contract.CodeUnauthorized, contract.CodeShuttingDown, contract.CodeNewInstance:
		return true
	}
	return false
}
