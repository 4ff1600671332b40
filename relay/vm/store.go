package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"colabrelay/shared/aside"
	"colabrelay/shared/bounded"
)

const (
	recordName = "vms.json"
	lockName   = "vms.lock"
	// lockLimit bounds the wait for another relay's lock of the record, which takes milliseconds.
	lockLimit = 15 * time.Second
	lockRetry = 20 * time.Millisecond
)

// errNotWritten means that the record is unchanged, such as on a full disk.
var errNotWritten = errors.New("write the record of VMs")

// store is the record of VMs in a folder. Any number of programs may use it at once.
type store struct {
	dir       string
	writeFile func(path string, content io.Reader) error // replaces a file atomically
}

func (s store) path() string { return filepath.Join(s.dir, recordName) }

// read returns all records. A damaged file is an error; the next change renames it.
func (s store) read() ([]Record, error) {
	if _, err := os.Stat(s.path()); errors.Is(err, fs.ErrNotExist) { // creates no folder
		return nil, nil
	}
	unlock, err := s.lock((*flock.Flock).TryRLockContext) // on Windows an open file cannot be replaced
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.readLocked()
}

func (s store) readLocked() ([]Record, error) {
	text, err := bounded.ReadFile(s.path(), maxRecordFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, bounded.ErrTooLong), errors.Is(err, bounded.ErrNotFile):
		return nil, fmt.Errorf("%w: %v (file %q)", ErrDamaged, err, s.path())
	case err != nil:
		return nil, fmt.Errorf("read the record of VMs: %v", err)
	}
	all, err := decodeRecords(text)
	if err != nil {
		return nil, fmt.Errorf("%w (file %q)", err, s.path())
	}
	return all, nil
}

// change replaces the records by what f makes of them; an error of f changes nothing. A
// damaged file is renamed first, and a new record begins: damage then says so.
func (s store) change(f func([]Record) ([]Record, error)) (damage, err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for the record of VMs: %v", err)
	}
	unlock, err := s.lock((*flock.Flock).TryLockContext)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := s.readLocked()
	if errors.Is(err, ErrDamaged) {
		if damage, err = s.setAsideLocked(err); err == nil {
			all = nil
		}
	}
	if err != nil {
		return damage, err
	}
	leaveFuture(all)
	if all, err = f(all); err != nil {
		return damage, err
	}
	text, err := encodeRecords(all)
	if err != nil {
		return damage, err
	}
	return damage, s.replaceLocked(text)
}

// replaceLocked writes the file atomically, readable by this user only.
func (s store) replaceLocked(text []byte) error {
	err := os.Chmod(s.path(), 0o600) // WriteFile keeps the mode of the old file
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.writeFile(s.path(), bytes.NewReader(text))
	}
	if err != nil {
		return fmt.Errorf("%w: %v", errNotWritten, err)
	}
	return nil
}

// setAsideLocked renames the damaged file and says where it is.
func (s store) setAsideLocked(cause error) (damage, err error) {
	kept, err := aside.Move(s.path())
	if err != nil {
		return nil, err
	}
	return fmt.Errorf("%w; it is kept as %q, and a new record was started: check the VMs of your Google account with `colab-relay vm list`", cause, kept), nil
}

// acquire is a method of a lock: shared or exclusive.
type acquire func(*flock.Flock, context.Context, time.Duration) (bool, error)

// lock takes the lock of the record.
func (s store) lock(by acquire) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	return takeLock(ctx, filepath.Join(s.dir, lockName), by)
}

// own reserves a VM for the caller until it calls release or its process ends: only the owner
// may start or stop the VM. It waits as long as ctx lasts.
func (s store) own(ctx context.Context, id string) (release func(), err error) {
	return takeLock(ctx, s.ownPath(id), (*flock.Flock).TryLockContext)
}

func (s store) ownPath(id string) string { return filepath.Join(s.dir, id+".lock") }

// isOwned reports whether some relay process starts or stops the VM now.
func (s store) isOwned(id string) bool {
	if _, err := os.Stat(s.ownPath(id)); err != nil {
		return false
	}
	l := flock.New(s.ownPath(id), flock.SetPermissions(0o600))
	got, err := l.TryRLock() // others that only look do not count
	_ = l.Close()
	return err == nil && !got
}

// takeLock opens its own file handle, so the lock also works between goroutines.
func takeLock(ctx context.Context, path string, by acquire) (unlock func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o600))
	if _, err := by(l, ctx, lockRetry); err != nil {
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return func() { _ = l.Close() }, nil
}

// update changes one record. It returns ErrStopped if somebody asked for the VM's end, or
// its record is gone.
func (s store) update(id string, f func(*Record)) error {
	_, err := s.change(func(all []Record) ([]Record, error) {
		r := find(all, id)
		if r == nil || r.Step == Stopping {
			return nil, ErrStopped
		}
		f(r)
		return all, nil
	})
	return err
}

// remove deletes a record, and the file of its lock: ids are never used again.
func (s store) remove(id string) error {
	_, err := s.change(func(all []Record) ([]Record, error) {
		return slices.DeleteFunc(all, func(r Record) bool { return r.ID == id }), nil
	})
	_ = os.Remove(s.ownPath(id))
	return err
}
