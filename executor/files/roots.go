// Package files serves the VM's files inside a few allowed roots: the working directory,
// the Drive mount, the temp folder and the folders that --allow-path adds.
//
// It must not open anything but folders and regular files, follow a link out of the
// roots, or show the state dir and the hidden files of uploads. The roots contain mistakes
// and careless agents. They do not stop a malicious caller, who may run any Python code as
// the same user. What code of another user can reach is decided by Linux: see Dir. Start reading at Roots.resolve, which every path goes through.
package files

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
)

const (
	contentDir = "/content"       // Colab's working directory, which notebooks name literally
	driveDir   = "/content/drive" // where Colab mounts Google Drive
)

// Roots are the folders from which files may be served. Roots keeps no folder open, so a
// root such as Drive may be unmounted and mounted again.
type Roots struct {
	workdir string
	roots   []root
	state   string // real path of the state dir, which is never served
	content bool   // contentDir exists; if not, it stands for the workdir
	user    *account.User
	home    string // escaped; empty if it is not known

	snapshots snapshots
}

// root is one allowed folder. Before a path is walked, the configured name of a root is
// replaced by its real path.
type root struct {
	name string // absolute and clean, as configured
	real string // without links
	user *account.User
}

// Open makes roots of the workdir and the extra folders, and hides the state dir. All
// must exist, because a missing folder has no real path to compare with. Relative paths
// are under the current directory. Everything in the roots is done with the rights of the
// user, who runs the kernel's code; nil means this process's own.
func Open(workdir string, extra []string, stateDir string, user *account.User) (*Roots, error) {
	if err := mustBeDir(stateDir); err != nil {
		return nil, err
	}
	state, err := newRoot(stateDir, nil)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	r := &Roots{user: user, state: state.real, snapshots: snapshots{most: maxSnapshots}}
	for _, dir := range append([]string{workdir}, extra...) {
		if err := mustBeDir(dir); err != nil {
			return nil, err
		}
		if err := r.add(dir); err != nil {
			return nil, err
		}
	}
	r.workdir = r.roots[0].real
	for _, dir := range standing() {
		if err := r.add(dir); err != nil {
			return nil, err
		}
	}
	_, err = os.Stat(contentDir)
	r.content = err == nil
	home, _ := os.UserHomeDir()
	if user != nil {
		home = user.Home
	}
	r.home = contract.EscapeName(home)
	return r, nil
}

// outside is the error about a path in none of the roots.
func (r *Roots) outside() error {
	names := make([]string, len(r.roots))
	for i, rt := range r.roots {
		names[i] = rt.name
	}
	return fmt.Errorf("%w: outside the folders that the executor serves (%q)", ErrForbidden, names)
}

func (r *Roots) add(dir string) error {
	rt, err := newRoot(dir, r.user)
	if err != nil {
		return err
	}
	if within(r.state, rt.real) {
		return fmt.Errorf("folder %q is inside the state folder", dir)
	}
	r.roots = append(r.roots, rt)
	return nil
}

// standing are the roots that nobody has to name.
func standing() []string { return []string{os.TempDir(), contract.MemoryFolder, driveDir} }

// ServedFrom returns the folder from which roots of the same folders would serve the file at
// path, which is absolute; empty if they would not. None of them needs to exist. all are the
// folders that they serve.
func ServedFrom(workdir string, extra []string, stateDir, path string) (folder string, all []string) {
	real := func(dir string) string {
		rt, err := newRoot(dir, nil)
		if err != nil {
			return dir
		}
		return rt.real
	}
	all = slices.Concat([]string{workdir}, extra, standing())
	parent := real(filepath.Dir(path))
	if within(real(stateDir), parent) {
		return "", all
	}
	if i := slices.IndexFunc(all, func(dir string) bool { return within(real(dir), parent) }); i >= 0 {
		folder = all[i]
	}
	return folder, all
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

func newRoot(dir string, user *account.User) (root, error) {
	name, err := filepath.Abs(dir)
	if err != nil {
		return root{}, fmt.Errorf("folder %q: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		real = name // it does not exist yet: Drive may be mounted later
	}
	return root{name: name, real: real, user: user}, nil
}

// open opens the root. Every path inside it is used through Dir, so that a link that is
// swapped in after resolve can't lead out.
func (rt root) open() (*Dir, error) { return openDirectory(rt.real, rt.user) }

// within reports whether path is dir or is under it. Both must be clean and absolute.
func within(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
