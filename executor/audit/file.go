package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// openFile opens or creates the file, for this user only, and locks it. Whoever can write to its
// folder must not be able to lead the log elsewhere.
func openFile(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil {
		if err := suitable(info); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, withoutPath(err)
	}
	info, err := f.Stat()
	if err == nil {
		err = suitable(info) // another file may have taken the name
	}
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		err = errors.New("another executor writes to it; choose another file")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// withoutPath removes the path from an error whose text has it already.
func withoutPath(err error) error {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		return inner.Err
	}
	return err
}

// suitable returns why a file cannot be the log.
func suitable(info fs.FileInfo) error {
	stat := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		return errors.New("must not be a symbolic link; name the file itself")
	case !info.Mode().IsRegular():
		return errors.New("must be a regular file; choose another name")
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("belongs to user %d; choose another file", stat.Uid)
	case stat.Nlink > 1:
		return errors.New("has another name too (a hard link); choose another file")
	}
	return nil
}

// Check returns what would keep the file from being opened.
func Check(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err == nil:
		return suitable(info)
	case errors.Is(err, fs.ErrNotExist):
		return syscall.Access(filepath.Dir(path), 0o3) // to write a new file
	}
	return withoutPath(err)
}
