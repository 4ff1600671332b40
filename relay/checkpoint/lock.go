package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// ErrBusy means that another call or relay has locked the checkpoint.
var ErrBusy = errors.New("another call or relay is using this checkpoint name")

// lockWait is how long to wait for a lock that another caller has. A killed relay holds its
// locks until the system has ended all its threads, which takes a moment on a busy computer:
// without the wait, the same call in a new relay was refused.
const lockWait = 2 * time.Second

// Lock reserves the checkpoint name in dir for the caller until it calls unlock, or its
// process ends. If another caller has the lock for longer than lockWait, the error is ErrBusy.
// A caller that reads a checkpoint and writes it back must hold the lock throughout.
func Lock(dir, name string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the checkpoint folder: %w", err)
	}
	unlock, err = LockFile(Path(dir, name) + ".lock")
	switch {
	case errors.Is(err, ErrBusy):
		return nil, fmt.Errorf("%q: %w", name, err)
	case err != nil:
		return nil, fmt.Errorf("locking checkpoint %q: %w", name, err)
	}
	return unlock, nil
}

// LockFile is Lock for a lock file, which it makes if it does not exist.
func LockFile(path string) (unlock func(), err error) {
	lock := flock.New(path, flock.SetPermissions(0o600))
	waiting, done := context.WithTimeout(context.Background(), lockWait)
	defer done()
	got, err := lock.TryLockContext(waiting, 10*time.Millisecond)
	switch {
	case got:
		return func() { _ = lock.Close() }, nil
	case waiting.Err() != nil:
		return nil, ErrBusy
	}
	return nil, err
}
