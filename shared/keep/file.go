package keep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"colabrelay/shared/bounded"
)

// ErrDamaged means that a file has no value of its kind. Change keeps it under another name.
var ErrDamaged = errors.New("is damaged")

// ErrNewer is the error of a File's Check for a value that a newer release has written. Such a
// file is not damaged, and is never replaced.
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
		if err = json.Unmarshal(text, &v); err == nil && f.Check != nil {
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
