package account

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

const (
	maxRemoved = 100_000 // entries that RemoveAll removes
	maxDepth   = 32      // folders in each other that it enters
)

// ErrTooMuch means that a folder holds more than the executor removes.
var ErrTooMuch = errors.New("it holds too many or too deeply nested files; remove it by hand")

// RemoveAll is os.RemoveAll with the rights of u. It is bounded, because code of u may have
// filled the folder so that its removal never ends, or needs all memory.
func (u *User) RemoveAll(path string) (err error) {
	if u == nil {
		return os.RemoveAll(path)
	}
	u.Do(func() {
		left := maxRemoved
		err = remove(path, maxDepth, &left)
	})
	if err != nil {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// remove removes what is at path, of at most left entries.
func remove(path string, depth int, left *int) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		*left--
		return nil
	}
	if !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	if depth == 0 {
		return ErrTooMuch
	}
	for {
		names, err := firstNames(path)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return os.Remove(path)
		}
		for _, name := range names {
			if *left <= 0 {
				return ErrTooMuch
			}
			if err := remove(filepath.Join(path, name), depth-1, left); err != nil {
				return err
			}
		}
	}
}

// firstNames reads some names in a folder.
func firstNames(path string) ([]string, error) {
	folder, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(256) // without names, the error shows when the folder is removed
	return names, nil
}
