package transfer

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"colabrelay/shared/contract"
)

// localFile is a file that is being uploaded, and what it was when it was opened.
type localFile struct {
	*os.File
	info      fs.FileInfo
	statAgain func() (fs.FileInfo, error) // looks at its name anew
}

// changed reports whether the file may hold other bytes than when it was opened, or
// its name another file.
func (f localFile) changed() bool {
	held, heldErr := f.Stat()
	named, namedErr := f.statAgain()
	return heldErr != nil || namedErr != nil || !sameState(f.info, held) || !sameState(f.info, named)
}

// errUnsized is of a file that holds more or less than its size, and did not change.
var errSizeMismatch = fmt.Errorf("%w: its size is not what it holds, as in /proc and /sys", ErrNotRegular)

// holdsMore reports whether the file goes on after its size.
func (f localFile) holdsMore() bool {
	n, _ := f.ReadAt(make([]byte, 1), f.info.Size())
	return n > 0
}

func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// opening is how a file is reached: by its path, or inside a root.
type opener struct {
	stat     func(string) (fs.FileInfo, error)
	openFile func(string, int, fs.FileMode) (*os.File, error)
	path     func(string) string // its path outside of the root
	guard    *inspection
}

func (j *job) byPath() opener {
	return opener{os.Stat, os.OpenFile, func(name string) string { return name }, j.guard}
}

func (j *job) inRoot(root *os.Root) opener {
	return opener{root.Stat, root.OpenFile, func(name string) string { return absolute(root, name) }, j.guard}
}

// file opens a regular file. Nothing else is opened: a FIFO would wait for a writer,
// a device may act on being opened.
func (o opener) open(name string) (localFile, error) {
	before, err := o.stat(name)
	if err != nil {
		return localFile{}, fmt.Errorf("opening %q: %w", name, err)
	}
	if !before.Mode().IsRegular() {
		return localFile{}, fmt.Errorf("opening %q: %w", name, ErrNotRegular)
	}
	// O_NONBLOCK, as a FIFO may have taken its place meanwhile.
	f, err := o.openFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return localFile{}, fmt.Errorf("opening %q: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return localFile{}, fmt.Errorf("opening %q: %w", name, ErrNotRegular)
	}
	if err := o.permit(name, info); err != nil {
		_ = f.Close()
		return localFile{}, err
	}
	return localFile{File: f, info: info, statAgain: func() (fs.FileInfo, error) { return o.stat(name) }}, nil
}

// permit asks the guard about the file that is open under name.
func (o opener) permit(name string, open fs.FileInfo) error {
	if o.guard == nil {
		return nil
	}
	real, err := realPath(o.path(name), open)
	if err != nil {
		return fmt.Errorf("opening %q: %w", name, err)
	}
	return o.guard.check(real, open)
}

// statLocal says what is to be uploaded, without opening it.
func statLocal(path string) (fs.FileInfo, error) {
	if strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("uploading %q: %w: it holds a NUL", path, ErrLocalPath)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("uploading %q: %w", path, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("uploading %q: %w", path, ErrNotRegular)
	}
	return info, nil
}

// contentDir is where uploads go that name no place.
const contentDir = "/content"

// fileTarget is the remote path of a file that goes to remote.
func (j *job) fileTarget(ctx context.Context, local, remote string) (string, error) {
	base := baseName(local)
	switch {
	case remote == "":
		return contentDir + "/" + base, nil
	case strings.HasSuffix(remote, "/"):
		return remote + base, nil
	}
	st, err := j.client.Stat(ctx, remote, false, 0)
	switch {
	case refusalCode(err) == contract.CodeNotFound:
		return remote, nil
	case err == nil && st.IsDir:
		return remote + "/" + base, nil
	}
	return remote, err
}

// folderTarget is the remote path of a folder that goes to remote.
func folderTarget(local, remote string) string {
	switch {
	case remote == "":
		return contentDir + "/" + baseName(local)
	case strings.HasSuffix(remote, "/"):
		return remote + baseName(local)
	}
	return remote
}

// baseName is the name of a local file, for the VM.
func baseName(local string) string {
	if full, err := filepath.Abs(local); err == nil {
		local = full
	}
	return contract.EscapeName(filepath.Base(local))
}
