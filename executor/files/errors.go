package files

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Errors of this package; each comes wrapped with the path it is about.
var (
	ErrBadPath   = errors.New("not a usable path")
	ErrForbidden = errors.New("path outside the allowed folders")
	ErrNotFound  = errors.New("no such file or folder")
	ErrNotDir    = errors.New("not a folder")
	ErrIsDir     = errors.New("a folder, not a file")
	// ErrNotRegular is a device, FIFO or socket: opening one may hang or do anything.
	// So is a file of /proc or /sys: it tells no true size.
	ErrNotRegular = errors.New("neither a file nor a folder")
	ErrChanged    = errors.New("the file changed meanwhile")
	ErrBadRange   = errors.New("not a range of this file")
	// ErrTooLarge is a file that does not belong in a batch.
	ErrTooLarge = errors.New("too large to be read with others")
	// ErrTooMany is a request about more files than one request may name.
	ErrTooMany  = errors.New("too many files in one request")
	ErrDiskFull = errors.New("the disk is full")
	// ErrBusy means that a bound on work at once is reached; it passes.
	ErrBusy = errors.New("too much under way")
)

// Classify turns the system's error into one of this package's, with the same
// words whatever the system calls it.
func Classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case errors.Is(err, syscall.ENOTDIR):
		return ErrNotDir
	case errors.Is(err, syscall.EISDIR):
		return ErrIsDir
	case errors.Is(err, syscall.ENXIO): // a FIFO nobody reads, or a socket
		return ErrNotRegular
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, fs.ErrInvalid):
		return ErrBadPath
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: permission denied", ErrForbidden)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: it is read-only", ErrForbidden)
	}
	return err
}

// WriteError turns the error of a write into one of this package's. EFBIG is a
// filesystem, or a limit of the process, that can't hold a file this long.
func WriteError(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) {
			return ErrDiskFull
		}
	}
	if err == nil {
		return nil
	}
	return Classify(err)
}
