package account

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrInReach means that a user could replace or change a file or folder.
var ErrInReach = errors.New("the user could replace it")

// CheckOutOfReach checks that u can't replace, rename or change what is at path, or put
// something there first: nothing on the way may belong to u or be writable for u. Otherwise
// u could lead what the executor writes elsewhere. It returns the path to use, in which
// links are resolved.
func (u *User) CheckOutOfReach(path string) (string, error) {
	if u == nil {
		return path, nil
	}
	found, err := existing(path)
	if err != nil {
		return "", err
	}
	for at, below := found.real, false; ; at, below = filepath.Dir(at), true {
		info, err := os.Lstat(at)
		if err != nil {
			return "", err
		}
		if u.controls(at, info, below) {
			return "", fmt.Errorf("%q: %w by changing %q", path, ErrInReach, at)
		}
		if at == "/" {
			return filepath.Join(found.real, found.missing), nil
		}
	}
}

// found is a path whose first part exists.
type found struct{ real, missing string }

func existing(path string) (found, error) {
	for missing := ""; ; path = filepath.Dir(path) {
		real, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return found{real, missing}, err
		}
		missing = filepath.Join(filepath.Base(path), missing)
	}
}

// controls reports whether u can change a file, or replace what is in a folder. In a sticky
// folder, such as /tmp, users can only replace what is theirs, which the caller has checked
// if something is there.
func (u *User) controls(path string, info fs.FileInfo, below bool) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == u.uid {
		return true
	}
	sticky := below && info.Mode()&fs.ModeSticky != 0
	return u.mayWrite(path, st) && !sticky
}

// mayWrite reports whether the mode allows u to write. An access control list may allow it
// where the mode's bits of the group, which are then the list's mask, have it.
func (u *User) mayWrite(path string, st *syscall.Stat_t) bool {
	const group, others = 0o020, 0o002
	_, err := unix.Lgetxattr(path, "system.posix_acl_access", nil)
	return st.Mode&others != 0 || st.Mode&group != 0 && (err == nil || u.in(int(st.Gid)))
}

// CanRead reports whether u can open a file.
func (u *User) CanRead(path string) (can bool) {
	u.Do(func() {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if can = err == nil; can {
			f.Close()
		}
	})
	return can
}

// CheckCanWrite checks that u can make files in a folder.
func (u *User) CheckCanWrite(folder string) (err error) {
	u.Do(func() {
		var f *os.File
		if f, err = os.CreateTemp(folder, ".colab-relay-check-*"); err == nil {
			f.Close()
			err = os.Remove(f.Name())
		}
	})
	return err
}
