package files

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Errors of this package. They are wrapped with the path that they are about.
var (
	ErrBadPath   = errors.New("not a usable path")
	ErrForbidden = errors.New("not allowed")
	ErrNotFound  = errors.New("no such file or folder")
	ErrNotDir    = errors.New("not a folder")
	ErrIsDir     = errors.New("a folder, not a file")
	// ErrNotRegular is a device, FIFO or socket, because opening one may hang or have side
	// effects. It is also a file of /proc or /sys, whose reported size is wrong.
	ErrNotRegular = errors.New("neither a file nor a folder")
	ErrChanged    = errors.New("the file changed")
	ErrBadRange   = errors.New("range outside the file")
	// ErrTooLarge is a file that is too large for a batch.
	ErrTooLarge = errors.New("too large to be read in a batch")
	// ErrTooMany is a request about more files than one request may name.
	ErrTooMany  = errors.New("too many files in one request")
	ErrDiskFull = errors.New("the disk is full")
	// ErrLeased is a file on which another program holds a lease, as file servers do.
	ErrLeased = errors.New("another program holds a lease on the file")
	// ErrBusy means that a limit on concurrent work is reached. The same call may succeed later.
	ErrBusy = errors.New("too many requests in progress")
)

// Classify turns a system's error into one of this package.
func Classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case errors.Is(err, syscall.ENOTDIR):
		return ErrNotDir
	case errors.Is(err, syscall.EISDIR):
		return ErrIsDir
	case errors.Is(err, syscall.ENXIO): // a FIFO without a reader, or a socket
		return ErrNotRegular
	case errors.Is(err, syscall.EAGAIN): // files are opened without waiting for the lease to end
		return ErrLeased
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, fs.ErrInvalid):
		return ErrBadPath
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: permission denied", ErrForbidden)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: the file system is read-only", ErrForbidden)
	}
	return err
}

// WriteError turns the error of a write into one of this package. EFBIG means that the file
// system, or a limit of the process, does not allow a file of this length.
func WriteError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return ErrDiskFull
	}
	return Classify(err)
}
