package uploads

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"colabrelay/executor/files"
)

// A part file is the hidden file beside the target that an upload is received in. It is on
// the target's file system, so that one rename gives it its name. It has its full size from
// the start, with holes for missing bytes.

// openPart opens the part file of an upload of size bytes. ErrNotFound means that it was
// deleted or replaced, and that the upload has to start again.
func openPart(dir *files.Dir, name string, size int64, flag int) (*os.File, error) {
	f, err := files.OpenRegular(dir, name, flag)
	if errors.Is(err, files.ErrNotRegular) || errors.Is(err, files.ErrIsDir) || errors.Is(err, files.ErrChanged) {
		return nil, files.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && st.Size != size {
		err = files.ErrNotFound
	}
	// A file with a second name is not ours: never write to it.
	if err == nil && flag != os.O_RDONLY && st.Nlink != 1 {
		err = files.ErrNotFound
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// newPart creates a part file, in place of an old one, and has fill write it. If fill
// fails, the file is deleted.
func newPart(dir *files.Dir, name string, fill func(*os.File) error) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files.WriteError(err)
	}
	f, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return files.WriteError(err)
	}
	if err = cmp.Or(fill(f), f.Close()); err != nil {
		dir.Remove(name)
	}
	return files.WriteError(err)
}

// checkSpace fails with ErrDiskFull if the disk of dir has less than need bytes free.
func checkSpace(dir *files.Dir, need int64) error {
	f, err := dir.Open(".")
	if err != nil {
		return files.Classify(err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || st.Blocks == 0 {
		return nil // some network file systems do not report it
	}
	free := int64(min(st.Bavail, 1<<62/uint64(st.Bsize))) * int64(st.Bsize)
	if need > free {
		return fmt.Errorf("%w: %d more bytes are needed and %d are free", files.ErrDiskFull, need, free)
	}
	return nil
}

// identity identifies a file under any name. Unlike the etag, it is not changed by a rename
// or a link, which change the ctime.
func identity(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x", st.Ino, info.Size(), info.ModTime().UnixNano())
}
