package keep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// ErrLocked means that another caller, in this process or another one, has the lock.
var ErrLocked = errors.New("another program has locked it")

// lockRetry is how often a lock is tried that somebody else has.
const lockRetry = 10 * time.Millisecond

// Lock takes the lock of the file at path, which it creates with its folder, until unlock is
// called or the process ends. It waits while others have the lock; when ctx ends first, the
// error is ErrLocked. Each call opens the file anew, so it also excludes callers in this process.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return take(path, func(l *flock.Flock) (bool, error) { return l.TryLockContext(ctx, lockRetry) })
}

// RLock is Lock for readers, who exclude nobody but a Lock. It creates no folder.
func RLock(ctx context.Context, path string) (unlock func(), err error) {
	return take(path, func(l *flock.Flock) (bool, error) { return l.TryRLockContext(ctx, lockRetry) })
}

// TryLock is Lock without waiting.
func TryLock(path string) (unlock func(), err error) { return take(path, (*flock.Flock).TryLock) }

// IsLocked reports whether somebody has the lock of the file at path, which it does not create.
func IsLocked(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	unlock, err := take(path, (*flock.Flock).TryRLock) // others that only look do not count
	if err == nil {
		unlock()
	}
	return errors.Is(err, ErrLocked)
}

func take(path string, try func(*flock.Flock) (bool, error)) (unlock func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o600))
	switch got, err := try(l); {
	case got:
		return func() { _ = l.Close() }, nil // closing the file releases the lock
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		_ = l.Close()
		return nil, fmt.Errorf("lock %q: %w", path, errors.Join(ErrLocked, err))
	default:
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
}
