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
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/shared/contract"
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
		return fmt.Errorf("folder %q: %w", dir, Classify(err))
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
