// Package files serves the VM's files inside a few allowed roots, and takes files
// into them: the workdir, the Drive mount, the temp folder and what --allow-path
// adds.
//
// It must not open anything but folders and regular files, follow a link out of
// the roots, show the state dir, or show a file in its place before it is whole.
// The roots keep mistakes and careless agents in; they are no wall against the
// caller, who may run any Python as the same user. Start reading at Roots.resolve:
// every path goes through it; then at Uploads.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"colabrelay/shared/contract"
)

// Errors of this package; each comes wrapped with the path it is about.
var (
	ErrBadPath   = errors.New("not a usable path")
	ErrForbidden = errors.New("path outside the allowed folders")
	ErrNotFound  = errors.New("no such file or folder")
	ErrNotDir    = errors.New("not a folder")
	ErrIsDir     = errors.New("a folder, not a file")
	// ErrNotRegular is a device, FIFO or socket: opening one may hang or do anything.
	// So is a file of /proc or /sys: it tells no true size.
	ErrNotRegular = errors.New("neither a file nor a folder")
	ErrChanged    = errors.New("the file changed meanwhile")
	ErrBadRange   = errors.New("not a range of this file")
	// ErrTooLarge is a file that does not belong in a batch.
	ErrTooLarge  = errors.New("too large to be read with others")
	ErrDiskFull  = errors.New("the disk is full")
	ErrNoUpload  = errors.New("no such upload")
	ErrBadUpload = errors.New("not a usable upload")
	// ErrDigest means all of an upload arrived and is not what was announced.
	ErrDigest = errors.New("the bytes received are not those announced")
	// ErrBusy means that a bound on work at once is reached; it passes.
	ErrBusy = errors.New("too much under way")
)

const (
	contentDir = "/content"       // Colab's workdir, which notebooks name literally
	driveDir   = "/content/drive" // where Colab mounts Google Drive
)

// Roots are the folders files may be served from. It holds no handles, so a root
// that is unmounted and mounted again, as Drive is, goes on working.
type Roots struct {
	workdir string
	roots   []root
	state   string // real path of the state dir, never served
	content bool   // contentDir exists; else it means the workdir

	snapshots snapshots
}

// root is one allowed folder. Names a user or a link may know it by are turned
// into the real path before a walk begins.
type root struct {
	name string // absolute and clean, as configured
	real string // without links
}

// Open takes the workdir and extra folders, and the state dir, which is kept out
// of sight. All must exist: what is not there has no real path to compare with.
// Relative folders are under the current directory.
func Open(workdir string, extra []string, stateDir string) (*Roots, error) {
	if err := mustBeDir(stateDir); err != nil {
		return nil, err
	}
	state, err := newRoot(stateDir)
	if err != nil {
		return nil, fmt.Errorf("state dir: %w", err)
	}
	r := &Roots{state: state.real, snapshots: snapshots{most: maxSnapshots}}
	for _, dir := range append([]string{workdir}, extra...) {
		if err := mustBeDir(dir); err != nil {
			return nil, err
		}
		if err := r.add(dir); err != nil {
			return nil, err
		}
	}
	r.workdir = r.roots[0].real
	for _, dir := range []string{os.TempDir(), contract.MemoryFolder, driveDir} {
		if err := r.add(dir); err != nil {
			return nil, err
		}
	}
	_, err = os.Stat(contentDir)
	r.content = err == nil
	return r, nil
}

// Workdir is the real path of the folder that relative paths are under.
func (r *Roots) Workdir() string { return r.workdir }

func (r *Roots) add(dir string) error {
	rt, err := newRoot(dir)
	if err != nil {
		return err
	}
	if within(r.state, rt.real) {
		return fmt.Errorf("folder %q is inside the state dir", dir)
	}
	r.roots = append(r.roots, rt)
	return nil
}

func mustBeDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("folder %q: %w", dir, classify(err))
	}
	if !info.IsDir() {
		return fmt.Errorf("folder %q: %w", dir, ErrNotDir)
	}
	return nil
}

func newRoot(dir string) (root, error) {
	name, err := filepath.Abs(dir)
	if err != nil {
		return root{}, fmt.Errorf("folder %q: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		real = name // not there yet: Drive may be mounted later
	}
	return root{name: name, real: real}, nil
}

// open opens the root; every use of a path inside it goes through os.Root, so a
// link swapped in after resolve still can't lead out.
func (rt root) open() (*os.Root, error) { return os.OpenRoot(rt.real) }

// within reports whether path is dir or lies under it; both clean and absolute.
func within(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// classify turns the system's error into one of this package's, with the same
// words whatever the system calls it.
func classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case errors.Is(err, syscall.ENOTDIR):
		return ErrNotDir
	case errors.Is(err, syscall.EISDIR):
		return ErrIsDir
	case errors.Is(err, syscall.ENXIO): // a FIFO nobody reads, or a socket
		return ErrNotRegular
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, fs.ErrInvalid):
		return ErrBadPath
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: permission denied", ErrForbidden)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: it is read-only", ErrForbidden)
	}
	return err
}
