package files

import (
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
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Version{}, fmt.Errorf("reading the file's status: %w", err)
	}
	return Version{
		ETag:     etag(uint64(st.Dev), st.Ino, st.Size, [2]int64{st.Mtim.Nano(), st.Ctim.Nano()}),
		Size:     st.Size,
		Modified: time.Unix(st.Mtim.Unix()),
		Changed:  time.Unix(st.Ctim.Unix()),
		mode:     fs.FileMode(st.Mode) & fs.ModePerm,
	}, nil
}

// etag identifies the content of a file by its inode, its size and both of its times.
func etag(device, inode uint64, size int64, times [2]int64) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", device, inode, size, times[0], times[1])
}

// ETagOf is the etag of a file that is not open.
func ETagOf(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return etag(uint64(st.Dev), st.Ino, st.Size, times(st))
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
