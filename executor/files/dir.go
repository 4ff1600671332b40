package files

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"colabrelay/executor/account"
)

// Dir is an open folder. Everything in it is done with the rights of the kernel's user, so
// whatever that user's code puts in the way, links, hard links or other folders, leads to
// nothing that this user could not read or write itself. No name leads out of the folder.
type Dir struct {
	root *os.Root
	user *account.User
}

// openDirectory opens the folder at an absolute path.
func openDirectory(path string, user *account.User) (*Dir, error) {
	d := &Dir{user: user}
	return d.opened(func() (err error) {
		d.root, err = os.OpenRoot(path)
		return err
	})
}

// opened returns d if open succeeds.
func (d *Dir) opened(open func() error) (*Dir, error) {
	if err := d.do(open); err != nil {
		return nil, err
	}
	return d, nil
}

// escapes is the text of os.Root's error for a link that leads out of the folder, for which
// package os has no name.
const escapes = "path escapes from parent"

// do does f with the user's rights. Paths are resolved before they are used here, so a link that
// leads out, or in circles, is a new one.
func (d *Dir) do(f func() error) (err error) {
	d.user.Do(func() { err = f() })
	if err != nil && (errors.Is(err, syscall.ELOOP) || strings.HasSuffix(err.Error(), escapes)) {
		return ErrChanged
	}
	return err
}

// OpenDir opens a folder in d.
func (d *Dir) OpenDir(name string) (*Dir, error) {
	below := &Dir{user: d.user}
	return below.opened(func() (err error) {
		below.root, err = d.root.OpenRoot(name)
		return err
	})
}

// OpenFile is os.Root.OpenFile.
func (d *Dir) OpenFile(name string, flag int, perm fs.FileMode) (f *os.File, err error) {
	err = d.do(func() (err error) {
		f, err = d.root.OpenFile(name, flag, perm)
		return err
	})
	return f, err
}

// Open opens a file or folder in d for reading.
func (d *Dir) Open(name string) (*os.File, error) { return d.OpenFile(name, os.O_RDONLY, 0) }

// Lstat describes a file in d, or a link itself.
func (d *Dir) Lstat(name string) (info fs.FileInfo, err error) {
	err = d.do(func() (err error) {
		info, err = d.root.Lstat(name)
		return err
	})
	return info, err
}

// Readlink is the target of a link in d.
func (d *Dir) Readlink(name string) (target string, err error) {
	err = d.do(func() (err error) {
		target, err = d.root.Readlink(name)
		return err
	})
	return target, err
}

// MkdirAll makes a folder and its parents in d.
func (d *Dir) MkdirAll(name string, perm fs.FileMode) error {
	return d.do(func() error { return d.root.MkdirAll(name, perm) })
}

// Remove removes a file or an empty folder in d.
func (d *Dir) Remove(name string) error { return d.do(func() error { return d.root.Remove(name) }) }

// Rename gives a file in d another name there.
func (d *Dir) Rename(from, to string) error {
	return d.do(func() error { return d.root.Rename(from, to) })
}

// Link gives a file in d a second name there.
func (d *Dir) Link(from, to string) error { return d.do(func() error { return d.root.Link(from, to) }) }

// Close closes the folder.
func (d *Dir) Close() error { return d.root.Close() }
