// Package keep stores small files that outlive a program and that several programs use at the
// same time. A reader sees the old content or the new one, and only this user may read it. What
// is damaged is kept under another name, so that a person can still look at it. It must not know
// what the files are for. Flights is its other half: work in this process that callers join. Start
// reading at File.
package keep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/natefinch/atomic"

	"colabrelay/shared/bounded"
)

// WriteFile replaces the file at path in one step, and creates its folder if it does not exist.
// Only this user may read it. After an error the old file is as it was.
func WriteFile(path string, content []byte) error { return WriteFileMode(path, content, 0o600) }

// WriteFileMode is WriteFile for a file of that mode.
func WriteFileMode(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no longer exists after the rename
	_, err = f.Write(content)
	if err == nil && mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return Replace(f.Name(), path)
}

// Replace renames a file, in one step also where another file has the new name.
func Replace(from, to string) error { return atomic.ReplaceFile(from, to) }

// WriteJSON is WriteFile for a value, as indented JSON.
func WriteJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = WriteFile(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}

// Aside renames a damaged file, or whatever else has its name, and returns its new path: the
// old one with ".damaged-" and the time, in UTC and to the nanosecond.
func Aside(path string) (kept string, err error) {
	kept = path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(path, kept); err != nil {
		return "", fmt.Errorf("rename the damaged file: %w", err)
	}
	return kept, nil
}

// ErrDamaged means that a file has no value of its kind. Change keeps it under another name.
var ErrDamaged = errors.New("is damaged")

// ErrNewer means that a newer release has written a file. It is not damaged, and is never replaced.
var ErrNewer = errors.New("was written by a newer release, so use that one")

// ErrNotWritten means that a change was not written, such as on a full disk: the file is as it was.
var ErrNotWritten = errors.New("write")

// lockLimit bounds the wait for another program's lock of a File. Programs hold it for
// milliseconds, so one that holds it longer hangs.
const lockLimit = 5 * time.Second

// File is a value in a JSON file, with a lock file beside it.
type File[T any] struct {
	Path string
	What string // it is, in errors, such as "the list of paired runtimes"
	Max  int64  // bytes
	// Version is the highest that the value's field "version" may have, and the lowest is 1; 0 is
	// for values without that field.
	Version int
	// Check says why a value is not one of this file; nil accepts all that JSON can decode.
	Check func(*T) error
	// Write replaces the file; nil means WriteFile.
	Write func(path string, content []byte) error
}

// Read returns the value, the zero value if there is no file. It creates nothing but the lock's
// file. The error may be ErrDamaged or ErrNewer.
func (f File[T]) Read() (v T, err error) {
	if _, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	unlock, err := RLock(ctx, f.lock()) // on Windows a file that is being read cannot be replaced
	switch {
	case err == nil:
		defer unlock()
	case errors.Is(err, ErrLocked):
		return v, err
	} // else the folder is read-only, for other programs too
	return f.read()
}

// Change replaces the value by what change makes of it; an error of change changes nothing. A
// damaged file is kept under another name, and change gets the zero value: damage then says so.
func (f File[T]) Change(change func(*T) error) (damage, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	unlock, err := Lock(ctx, f.lock())
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, err := f.read()
	if errors.Is(err, ErrDamaged) {
		kept, moveErr := Aside(f.Path)
		if moveErr != nil {
			return nil, errors.Join(err, moveErr)
		}
		damage, err = fmt.Errorf("%w; the damaged file is kept as %q, and a new one was started", err, kept), nil
	}
	if err == nil {
		err = change(&v)
	}
	if err != nil {
		return damage, err
	}
	return damage, f.write(v)
}

// lock is the lock's file.
func (f File[T]) lock() string { return strings.TrimSuffix(f.Path, ".json") + ".lock" }

func (f File[T]) read() (v T, err error) {
	text, err := bounded.ReadFile(f.Path, f.Max)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return v, nil
	case errors.Is(err, bounded.ErrTooLong), errors.Is(err, bounded.ErrNotFile):
	case err != nil:
		return v, fmt.Errorf("read %s: %w", f.What, err)
	default:
		var head struct {
			Version int `json:"version"`
		}
		_ = json.Unmarshal(text, &head) // a newer value may have another form
		if f.Version > 0 && head.Version > f.Version {
			err = fmt.Errorf("%w (it has version %d, and this one knows up to %d)", ErrNewer, head.Version, f.Version)
		} else if err = json.Unmarshal(text, &v); err == nil && f.Version > 0 && head.Version < 1 {
			err = fmt.Errorf("its version is %d", head.Version)
		} else if err == nil && f.Check != nil {
			err = f.Check(&v)
		}
	}
	var none T
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, ErrNewer):
		return none, fmt.Errorf("%s %w (file %q)", f.What, err, f.Path)
	}
	return none, fmt.Errorf("%s %w: %w (file %q)", f.What, ErrDamaged, err, f.Path)
}

func (f File[T]) write(v T) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrNotWritten, f.What, err)
	}
	text = append(text, '\n')
	if int64(len(text)) > f.Max {
		return fmt.Errorf("%w %s: %w", ErrNotWritten, f.What, bounded.TooLong(f.Max))
	}
	write := f.Write
	if write == nil {
		write = WriteFile
	}
	if err := write(f.Path, text); err != nil {
		return fmt.Errorf("%w %s: %w", ErrNotWritten, f.What, err)
	}
	return nil
}

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

// LockAndRemove is Lock of a file that unlock removes. Its folder must exist.
func LockAndRemove(ctx context.Context, path string) (unlock func(), err error) {
	for {
		l := flock.New(path, flock.SetPermissions(0o600))
		got, err := l.TryLock()
		if err != nil {
			return nil, err
		}
		locked, lockedErr := l.Stat()
		named, namedErr := os.Lstat(path)
		switch { // the owner before may have removed the file between our open and our lock
		case got && lockedErr == nil && namedErr == nil && os.SameFile(locked, named):
			return func() { unlockAndRemove(l) }, nil
		case !got:
			select {
			case <-ctx.Done():
				err = fmt.Errorf("lock %q: %w", path, ErrLocked)
			case <-time.After(lockRetry): // then it is opened anew, because the owner removes it
			}
		}
		if _ = l.Close(); err != nil {
			return nil, err
		}
	}
}

// unlockAndRemove removes the file first where the system can, so that no other process locks it in
// between.
func unlockAndRemove(l *flock.Flock) {
	if runtime.GOOS != "windows" {
		_ = os.Remove(l.Path())
	}
	_ = l.Close()
	if runtime.GOOS == "windows" {
		_ = os.Remove(l.Path()) // fails while another process has it open
	}
}

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
