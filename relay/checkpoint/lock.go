package checkpoint

import (
	"errors"
	"fmt"
	"os"

	"github.com/gofrs/flock"
)

// ErrBusy means that another call or relay has locked the checkpoint.
var ErrBusy = errors.New("another call or relay is using this checkpoint name")

// Lock reserves the checkpoint name in dir for the caller until it calls unlock, or its
// process ends. It does not wait: if another caller has the lock, the error is ErrBusy. A
// caller that reads a checkpoint and writes it back must hold the lock throughout.
func Lock(dir, name string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the checkpoint folder: %w", err)
	}
	lock := flock.New(Path(dir, name)+".lock", flock.SetPermissions(0o600))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking checkpoint %q: %w", name, err)
	}
	if !got {
		return nil, fmt.Errorf("%q: %w", name, ErrBusy)
	}
	return func() { _ = lock.Close() }, nil
}
