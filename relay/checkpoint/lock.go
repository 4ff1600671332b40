package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/shared/keep"
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
	if unlock, err = LockFile(Path(dir, name) + ".lock"); err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return unlock, nil
}

// LockFile is Lock for a lock file, which it makes if it does not exist.
func LockFile(path string) (unlock func(), err error) {
	waiting, done := context.WithTimeout(context.Background(), lockWait)
	defer done()
	unlock, err = keep.Lock(waiting, path)
	if errors.Is(err, keep.ErrLocked) {
		return nil, ErrBusy
	}
	return unlock, err
}
