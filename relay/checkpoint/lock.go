package checkpoint

import (
	"errors"
	"fmt"
	"os"

	"github.com/gofrs/flock"
)

// ErrBusy means that another call or relay uses the checkpoint now.
var ErrBusy = errors.New("another call or relay uses this checkpoint name now")

// Lock gives the caller the checkpoint name in dir to itself until it calls unlock, or
// ends. It does not wait: where somebody else has it, the error is ErrBusy. Who writes
// a checkpoint from what it read of it before holds the lock all the time between.
func Lock(dir, name string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the checkpoint folder: %w", err)
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
