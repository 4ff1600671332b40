package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openDir opens the folder at p. It goes down folder by folder and follows no
// link: one swapped in since resolve could lead to the state dir, which os.Root
// alone would allow.
func (p place) openDir() (*os.Root, error) {
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

// enter opens a folder of dir that is no link.
func enter(dir *os.Root, name string) (*os.Root, error) {
	below, err := dir.OpenRoot(name)
	if err != nil {
		return nil, refused(dir, name, err)
	}
	seen, err := dir.Lstat(name)
	if err == nil {
		var opened fs.FileInfo
		if opened, err = below.Stat("."); err == nil && !os.SameFile(seen, opened) {
			err = ErrChanged
		}
	}
	if err != nil {
		below.Close()
		return nil, Classify(err)
	}
	return below, nil
}

// holder is the folder that holds p, and p's name in it.
func (p place) holder() (place, string) {
	return place{root: p.root, rel: filepath.Dir(p.rel)}, filepath.Base(p.rel)
}

// openFile opens the regular file at p for reading. What was looked at is what is
// opened: another file swapped in since is ErrChanged, and a FIFO swapped in does
// not hang.
func (p place) openFile() (*os.File, error) {
	if p.info.IsDir() {
		return nil, ErrIsDir
	}
	if !p.info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	above, name := p.holder()
	dir, err := above.openDir()
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
	if isMadeUp(f) {
		f.Close()
		return nil, ErrNotRegular
	}
	return f, nil
}

// madeUp are the filesystems whose files the kernel writes while they are read. Most
// tell 0 bytes, so that a copy would be empty and look whole.
var madeUp = []int64{
	0x9fa0,     // proc
	0x62656572, // sysfs
	0x27e0eb,   // cgroup
	0x63677270, // cgroup2
	0x64626720, // debugfs
	0x74726163, // tracefs
	0x73636673, // securityfs
}

// isMadeUp reports whether f is such a file. Those take no blocks; other files are
// spared the question, which Drive would answer over the network.
func isMadeUp(f *os.File) bool {
	var st unix.Stat_t
	var on unix.Statfs_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Blocks > 0 || unix.Fstatfs(int(f.Fd()), &on) != nil {
		return false
	}
	return slices.Contains(madeUp, int64(on.Type))
}

// OpenRegular opens a regular file of dir, never through a link, and without
// waiting for the other end of a FIFO.
func OpenRegular(dir *os.Root, name string, flag int) (*os.File, error) {
	f, err := dir.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refused(dir, name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if seen, lstatErr := dir.Lstat(name); err == nil && (lstatErr != nil || !os.SameFile(seen, info)) {
		err = ErrChanged // os.Root follows a link that stays inside it
	}
	if err != nil {
		f.Close()
		return nil, Classify(err)
	}
	return f, nil
}

// refused is why name, which was no link, could not be opened. os.Root has no
// error to match for a link that leads out of it.
func refused(dir *os.Root, name string, err error) error {
	if info, lstatErr := dir.Lstat(name); lstatErr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return ErrChanged
	}
	return Classify(err)
}

// Version is which bytes a file holds, as far as the system tells: any write
// changes a time, a replaced file has another inode.
type Version struct {
	ETag     string
	Size     int64
	Modified time.Time
	Changed  time.Time // the last change of bytes or attributes
}

func VersionOf(f *os.File) (Version, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Version{}, fmt.Errorf("looking at the file: %w", err)
	}
	return Version{
		ETag:     etag(uint64(st.Dev), st.Ino, st.Size, [2]int64{st.Mtim.Nano(), st.Ctim.Nano()}),
		Size:     st.Size,
		Modified: time.Unix(st.Mtim.Unix()),
		Changed:  time.Unix(st.Ctim.Unix()),
	}, nil
}

// etag names certain bytes by where they are and by both of the file's times.
func etag(device, inode uint64, size int64, times [2]int64) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", device, inode, size, times[0], times[1])
}

// etagOf is the etag of a file that was looked at and not opened.
func etagOf(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return etag(uint64(st.Dev), st.Ino, st.Size, times(st))
}

// Unchanged reports whether f still is what it was.
func (v Version) Unchanged(f *os.File) error {
	now, err := VersionOf(f)
	if err == nil && now.ETag != v.ETag {
		err = ErrChanged
	}
	return err
}
