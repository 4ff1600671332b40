package uploads

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"colabrelay/executor/files"
)

// A part is the hidden file beside a target that an upload arrives in. Being on
// the target's filesystem it gets there by one rename. It has its whole size from
// the start, with holes for what is missing.

// openPart opens the part of an upload of size bytes. ErrNotFound means that it is
// gone, or is another file now, and that the upload has to begin anew.
func openPart(dir *os.Root, name string, size int64, flag int) (*os.File, error) {
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
	// Bytes are never written where another name shows them: that file is not ours.
	if err == nil && flag != os.O_RDONLY && st.Nlink != 1 {
		err = files.ErrNotFound
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// makePart makes an empty part of size bytes, in place of an old one.
func makePart(dir *os.Root, name string, size int64) error {
	return newPart(dir, name, func(f *os.File) error { return f.Truncate(size) })
}

// writePart makes a part that holds body, in place of an old one.
func writePart(dir *os.Root, name string, body []byte) error {
	return newPart(dir, name, func(f *os.File) error {
		_, err := f.Write(body)
		return err
	})
}

// newPart leaves no part where fill fails.
func newPart(dir *os.Root, name string, fill func(*os.File) error) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files.WriteError(err)
	}
	f, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return files.WriteError(err)
	}
	err = fill(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		dir.Remove(name)
	}
	return files.WriteError(err)
}

// writeAt writes body at offset and returns how much of it is there for sure.
func writeAt(f *os.File, body []byte, offset int64) (int, error) {
	n, err := f.WriteAt(body, offset)
	return n, files.WriteError(err)
}

// room reports ErrDiskFull when need bytes more do not fit beside what is in dir.
func room(dir *os.Root, need int64) error {
	f, err := dir.Open(".")
	if err != nil {
		return files.Classify(err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || st.Blocks == 0 {
		return nil // it does not tell, as some network filesystems
	}
	free := int64(min(st.Bavail, 1<<62/uint64(st.Bsize))) * int64(st.Bsize)
	if need > free {
		return fmt.Errorf("%w: %d bytes more are needed, %d are free", files.ErrDiskFull, need, free)
	}
	return nil
}

// identity tells a file under whatever name: it outlives a rename and a link,
// which change the ctime and with it the etag.
func identity(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x-%x-%x", st.Ino, info.Size(), info.ModTime().UnixNano())
}
