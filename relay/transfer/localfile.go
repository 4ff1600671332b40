package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/partfile"
)

// localFile is a file that is being uploaded, and its state when it was opened.
type localFile struct {
	*os.File
	info      fs.FileInfo
	statAgain func() (fs.FileInfo, error) // stats its name again
}

// altered reports whether the file may have other bytes, or more, than when it was opened: a digest
// tells. The error is errStale if its name belongs to another file.
func (f localFile) altered() (bool, error) {
	named, err := f.statAgain()
	if err != nil || !os.SameFile(f.info, named) {
		return true, errStale
	}
	return !sameState(f.info, named), nil
}

// errSizeMismatch means that a file contains more or less than its size, although it did
// not change.
var errSizeMismatch = fmt.Errorf("%w: its size differs from its content, as in /proc and /sys", ErrNotRegular)

// check returns errSizeMismatch if the file's last byte is not where its size says, although the
// file was not altered.
func (f localFile) check() error {
	last := max(0, f.info.Size()-1)
	n, _ := f.ReadAt(make([]byte, 2), last)
	if int64(n) == f.info.Size()-last {
		return nil
	}
	if altered, err := f.altered(); altered { // after the read, which may have met a longer file
		return err
	}
	return errSizeMismatch
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
		return nil, saidError{fmt.Sprintf("%q does not exist on this computer", path), err}
	}
	if err != nil {
		return nil, fmt.Errorf("uploading %q: %w", path, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("uploading %q: %w", path, ErrNotRegular)
	}
	return info, nil
}

// saidError is an error with a text of its own.
type saidError struct {
	text string
	error
}

// Error implements error.
func (e saidError) Error() string { return e.text }

// Unwrap returns the error.
func (e saidError) Unwrap() error { return e.error }

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

const (
	originSuffix = ".from"
	originFormat = "colab-relay folder 1" // marks a file as an origin
	maxOrigin    = 64 << 10               // bytes; a larger file is not an origin
)

// origin records which download created a local folder.
// The executor decides whether a path on the VM is a folder, so without this record a
// hostile executor could write into any local folder with that name.
type origin struct {
	Format  string `json:"format"`
	Runtime string `json:"runtime"`
	Remote  string `json:"remote_path"` // absolute and escaped
}

// newOrigin returns the origin of a download of remote. A relative path means the same as
// that path below /content.
func newOrigin(runtime, remote string) origin {
	// One path may be written in several ways, and a shell passes any bytes, which JSON cannot carry.
	remote = contract.EscapeName(contract.UnescapeName(remote))
	if !path.IsAbs(remote) {
		remote = path.Join(contentDir, remote)
	}
	return origin{Format: originFormat, Runtime: runtime, Remote: path.Clean(remote)}
}

// ownName returns the local name of a download for which the caller chose none. It depends
// on the path that the caller typed, never on an answer. A download of /, /content or ~ gets
// the runtime's name.
func (o origin) ownName() string {
	if o.Remote == "/" || o.Remote == contentDir || o.Remote == contentDir+"/~" {
		return localName(o.Runtime, onWindows)
	}
	return localName(o.Remote, onWindows)
}

// isOf reports whether this download created the folder called name in root.
func (o origin) isOf(r records, root *os.Root, name string) bool {
	info, err := root.Stat(name)
	if err != nil || !info.IsDir() {
		return false
	}
	text, err := readOwn(r.root, r.name(name, originSuffix), maxOrigin)
	var found origin
	return err == nil && json.Unmarshal(text, &found) == nil && found == o
}

// save records that this download created the folder called name, which need not exist
// yet.
func (o origin) save(r records, name string) error {
	r.prune()
	return saveOwn(r.root, r.name(name, originSuffix), o)
}

// claimed is the destination folder of a download.
type claimed struct {
	name   string
	same   bool // it has exactly the files of the download
	unlock func()
}

// claimFolder finds the destination folder of a download: name or the first numbered name
// that is free, that an earlier call of the same download created, or that has exactly the
// same files, as isSame reports. With Overwrite any folder will do. No other download can
// use the folder until unlock is called.
func (j *job) claimFolder(root *os.Root, name string, from origin, isSame func(name string) (bool, error)) (c claimed, err error) {
	for i := range maxEntries + 1 {
		c.name = filename.Numbered(name, i)
		if c.unlock, err = j.records.lock(root, c.name+"/"); err != nil {
			return c, err
		}
		info, err := root.Stat(c.name)
		isDir := err == nil && info.IsDir()
		_, linkErr := root.Lstat(c.name)
		switch {
		case errors.Is(linkErr, fs.ErrNotExist), from.isOf(j.records, root, c.name), isDir && j.options.Overwrite:
			return c, nil
		case linkErr != nil:
			c.unlock()
			return c, fmt.Errorf("inspecting %q: %w", absolute(root, c.name), linkErr)
		case isDir:
			if c.same, err = isSame(c.name); c.same {
				return c, nil
			}
		}
		c.unlock()
		if isDir && err != nil {
			return c, err
		}
	}
	return c, fmt.Errorf("%w: %q and its numbered names are taken", ErrForbiddenName, name)
}

// makeTree creates the folders of a download, the first of which contains the others. It
// refuses links among the others, because files would leave the first folder through them.
func makeTree(root *os.Root, folders []string) error {
	for i, folder := range folders {
		if info, err := root.Lstat(folder); i > 0 && err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %q is a link, and the download needs a folder of that name: remove the link first", ErrForbiddenName, absolute(root, folder))
		}
		if err := makeFolder(root, folder); err != nil {
			return err
		}
	}
	return nil
}

// readOwn reads a file that saveOwn wrote, at most limit bytes. A longer file is
// errNotOurs.
func readOwn(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, errNotOurs
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded.ReadAll(f, limit)
}

// saveOwn stores v as JSON under name in root, by a rename.
func saveOwn(root *os.Root, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %q: %w", absolute(root, name), err)
	}
	fresh := hiddenName(name, ".new")
	if err := root.WriteFile(fresh, append(text, '\n'), 0o600); err != nil {
		_ = root.Remove(fresh)
		return fmt.Errorf("writing %q: %w", absolute(root, name), markDiskFull(err))
	}
	if err := root.Rename(fresh, name); err != nil {
		return fmt.Errorf("writing %q: %w", absolute(root, name), markDiskFull(err))
	}
	return nil
}

// readDigest returns the SHA-256 of the first size bytes of r. A shorter file is errStale.
func readDigest(ctx context.Context, r io.ReaderAt, size int64, step func(n int64)) (string, error) {
	h := partfile.NewHash()
	err := h.ReadTo(ctx, r, size, step)
	return h.Sum(), err
}
