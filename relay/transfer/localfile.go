package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// localFile is a file that is being uploaded, and its state when it was opened.
type localFile struct {
	*os.File
	info      fs.FileInfo
	statAgain func() (fs.FileInfo, error) // stats its name again
}

// sinceOpened reports whether the file's bytes may have changed since it was opened, or its
// name may belong to another file. grew says that it became longer: then a digest tells whether
// its first bytes changed too.
func (f localFile) sinceOpened() (changed, grew bool) {
	open, openErr := f.Stat()
	named, namedErr := f.statAgain()
	switch {
	case openErr != nil || namedErr != nil || !os.SameFile(f.info, named):
		return true, false
	case sameState(f.info, open) && sameState(f.info, named):
		return false, false
	}
	grew = named.Size() > f.info.Size()
	return !grew, grew
}

// errSizeMismatch means that a file contains more or less than its size, although it did
// not change.
var errSizeMismatch = fmt.Errorf("%w: its size differs from its content, as in /proc and /sys", ErrNotRegular)

// check returns errStale if the file changed since it was opened, other than by growing, and
// errSizeMismatch if it did not and its last byte is not where its size says.
func (f localFile) check() error {
	last := max(0, f.info.Size()-1)
	n, _ := f.ReadAt(make([]byte, 2), last)
	changed, grew := f.sinceOpened() // after the read, which may have met a longer file
	switch {
	case changed:
		return errStale
	case !grew && int64(n) != f.info.Size()-last:
		return errSizeMismatch
	}
	return nil
}

// tooShort is why a file has fewer bytes than when it was opened.
func (f localFile) tooShort() error { return cmp.Or(f.check(), errStale) }

func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// opener opens files by their paths, or inside a root.
type opener struct {
	stat     func(string) (fs.FileInfo, error)
	openFile func(string, int, fs.FileMode) (*os.File, error)
	path     func(string) string // for a name in the root, its path
	guard    *Guard
}

func (j *job) byPath() opener {
	return opener{os.Stat, os.OpenFile, func(name string) string { return name }, j.guard}
}

func (j *job) inRoot(root *os.Root) opener {
	return opener{root.Stat, root.OpenFile, func(name string) string { return absolute(root, name) }, j.guard}
}

// open opens a regular file. It opens nothing else: a FIFO would wait for a writer, and a
// device may react to being opened.
func (o opener) open(name string) (localFile, error) {
	before, err := o.stat(name)
	if err != nil {
		return localFile{}, fmt.Errorf("opening %q: %w", name, err)
	}
	if !before.Mode().IsRegular() {
		return localFile{}, fmt.Errorf("opening %q: %w", name, ErrNotRegular)
	}
	// O_NONBLOCK, because a FIFO may have replaced the file since.
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

// permit checks the open file called name against the guard.
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

// statLocal returns the description of a file or folder to upload, without opening it.
func statLocal(path string) (fs.FileInfo, error) {
	if path == "" {
		return nil, errors.New("LOCAL is empty: name a file or folder on this computer")
	}
	if strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("uploading %q: %w: it contains a NUL character", path, ErrLocalPath)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missingError{path, err}
	}
	if err != nil {
		return nil, fmt.Errorf("uploading %q: %w", path, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("uploading %q: %w", path, ErrNotRegular)
	}
	return info, nil
}

// missingError says that the file or folder to upload does not exist.
type missingError struct {
	path string
	error
}

// Error implements error.
func (e missingError) Error() string {
	return fmt.Sprintf("%q does not exist on this computer", e.path)
}

// Unwrap returns the error of the system.
func (e missingError) Unwrap() error { return e.error }

// UploadPath returns the path on the VM that a person or model typed for an upload on a system, one
// of Go's GOOS. It is RemotePath, or filename.ErrNotation.
func UploadPath(typed, system string) (string, error) {
	return RemotePath(typed, system), filename.CheckTyped(typed)
}

// RemotePath returns the path on the VM that a person or model typed on a system, one of
// Go's GOOS. On Windows a backslash separates folders, as in that system's own paths, unless an
// escaped byte begins with it; see contract.EscapeName. Elsewhere it is a character of a name.
func RemotePath(typed, system string) string {
	if system != "windows" {
		return typed
	}
	var b strings.Builder
	for i := 0; i < len(typed); i++ {
		const escape = len(`\xNN`)
		switch {
		case typed[i] != '\\':
			b.WriteByte(typed[i])
		case i+escape <= len(typed) && contract.UnescapeName(typed[i:i+escape]) != typed[i:i+escape]:
			b.WriteString(typed[i : i+escape])
			i += escape - 1
		default:
			b.WriteByte('/')
		}
	}
	return b.String()
}

// contentDir is the destination of uploads that name none.
const contentDir = "/content"

// fileTarget returns the remote path of a file uploaded to remote, and whether it is known to
// be absent.
func (j *job) fileTarget(ctx context.Context, local, remote string) (target string, absent bool, err error) {
	if target := folderTarget(local, remote); target != remote {
		return target, false, nil
	}
	st, err := j.client.Stat(ctx, remote, false, 0)
	switch {
	case refusalCode(err) == contract.CodeNotFound:
		return remote, true, nil
	case err == nil && st.IsDir:
		return remote + "/" + baseName(local), false, nil
	}
	return remote, false, err
}

// folderTarget returns the remote path of a folder uploaded to remote.
func folderTarget(local, remote string) string {
	switch {
	case remote == "":
		return contentDir + "/" + baseName(local)
	case strings.HasSuffix(remote, "/"):
		return remote + baseName(local)
	}
	return remote
}

// baseName returns the name that a local file gets on the VM.
func baseName(local string) string {
	if full, err := filepath.Abs(local); err == nil {
		local = full
	}
	return contract.EscapeName(filepath.Base(local))
}
