package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"colabrelay/executor/account"
	"colabrelay/shared/partfile"
)

// openDir opens the folder at p. It goes down folder by folder and follows no link: a link
// swapped in since resolve could lead to the state dir, which os.Root alone would allow.
func (p location) openDir() (*Dir, error) {
	dir, err := p.root.open()
	if err != nil {
		return nil, Classify(err)
	}
	for seg := range strings.SplitSeq(p.rel, "/") {
		below, err := enter(dir, seg)
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = below
	}
	return dir, nil
}

// enter opens a folder in dir. It does not follow a link.
func enter(dir *Dir, name string) (*Dir, error) {
	below, err := dir.OpenDir(name)
	if err != nil {
		return nil, openError(dir, name, err)
	}
	seen, err := dir.Lstat(name)
	if err == nil {
		var opened fs.FileInfo
		if opened, err = below.Lstat("."); err == nil && !os.SameFile(seen, opened) {
			err = ErrChanged
		}
	}
	if err != nil {
		below.Close()
		return nil, Classify(err)
	}
	return below, nil
}

// parent is the folder that contains p, and p's name in it.
func (p location) parent() (location, string) {
	return location{root: p.root, rel: filepath.Dir(p.rel)}, filepath.Base(p.rel)
}

// openFile opens the regular file at p for reading. It opens the very file that resolve
// found: it fails with ErrChanged if another one was swapped in, and a FIFO does not make
// it hang.
func (p location) openFile() (*os.File, error) {
	if p.info.IsDir() {
		return nil, ErrIsDir
	}
	if !p.info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	folder, name := p.parent()
	dir, err := folder.openDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := OpenRegular(dir, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !os.SameFile(p.info, info) {
		f.Close()
		return nil, ErrChanged
	}
	if isGenerated(f) {
		f.Close()
		return nil, ErrNotRegular
	}
	return f, nil
}

// generated are the file systems whose files the Linux kernel generates on reading. Most of
// these files report 0 bytes, so a copy would be empty and look complete.
var generated = []int64{
	0x9fa0,     // proc
	0x62656572, // sysfs
	0x27e0eb,   // cgroup
	0x63677270, // cgroup2
	0x64626720, // debugfs
	0x74726163, // tracefs
	0x73636673, // securityfs
}

// isGenerated reports whether f is such a file. They occupy no blocks. For other files the
// file system is not queried, because Drive would answer over the network.
func isGenerated(f *os.File) bool {
	var st unix.Stat_t
	var on unix.Statfs_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Blocks > 0 || unix.Fstatfs(int(f.Fd()), &on) != nil {
		return false
	}
	return slices.Contains(generated, int64(on.Type))
}

// OpenRegular opens a regular file in dir. It follows no link and does not wait for the
// other end of a FIFO.
func OpenRegular(dir *Dir, name string, flag int) (*os.File, error) {
	f, err := dir.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, openError(dir, name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if seen, lstatErr := dir.Lstat(name); err == nil && (lstatErr != nil || !os.SameFile(seen, info)) {
		err = ErrChanged // os.Root follows links that stay inside it
	}
	if err != nil {
		f.Close()
		return nil, Classify(err)
	}
	return f, nil
}

// openError is the error for a name that could not be opened and that was not a link
// before. os.Root has no error to match for a link that leads out of it.
func openError(dir *Dir, name string, err error) error {
	if info, lstatErr := dir.Lstat(name); lstatErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return ErrChanged
	}
	return Classify(err)
}

// Version identifies the content of a file: any write changes one of its times, and a
// replaced file has another inode.
type Version struct {
	ETag     string
	Size     int64
	Modified time.Time
	Changed  time.Time   // the last change of bytes or attributes
	mode     fs.FileMode // its permissions
}

// VersionOf is the version of an open file.
func VersionOf(f *os.File) (Version, error) {
	info, err := f.Stat()
	if err != nil {
		return Version{}, fmt.Errorf("reading the file's status: %w", err)
	}
	v := Version{ETag: ETagOf(info), Size: info.Size(), Modified: info.ModTime(), mode: info.Mode().Perm()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		v.Changed = time.Unix(0, times(st)[1])
	}
	return v, nil
}

// ETagOf identifies the content of a file by its inode, its size and both of its times.
func ETagOf(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	at := times(st)
	return fmt.Sprintf("%x-%x-%x-%x-%x", uint64(st.Dev), st.Ino, info.Size(), at[0], at[1])
}

// lengthAt is how many bytes the file had when its etag was etag. It fails with ErrChanged unless
// the file is unchanged since or, as far as inode and size tell, only became longer. Whether the
// first bytes are still the same, only their digest tells.
func (v Version) lengthAt(etag string) (int64, error) {
	if v.ETag == etag {
		return v.Size, nil
	}
	then, now := strings.SplitN(etag, "-", 4), strings.SplitN(v.ETag, "-", 4) // device, inode, size, times
	if len(then) != 4 || then[0] != now[0] || then[1] != now[1] {
		return 0, ErrChanged
	}
	size, err := strconv.ParseInt(then[2], 16, 64)
	if err != nil || size < 0 || size >= v.Size {
		return 0, ErrChanged
	}
	return size, nil
}

// Unchanged fails with ErrChanged if f has another version now.
func (v Version) Unchanged(f *os.File) error {
	now, err := VersionOf(f)
	if err == nil && now.ETag != v.ETag {
		err = ErrChanged
	}
	return err
}

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
	ErrChanged    = partfile.ErrChanged
	ErrBadRange   = partfile.ErrBadRange
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
