package files

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// Target is where a new file is to be put: a folder, which may not exist yet, and a name.
type Target struct {
	folder location
	Name   string
	Linked bool // a link below the root is in the requested path
}

// Target resolves a path that may not exist yet. From the first missing name on, names
// only have to be usable. Links are followed.
func (r *Roots) Target(path string) (Target, error) {
	abs, err := r.Absolute(path)
	if err != nil {
		return Target{}, err
	}
	w := walk{roots: r, at: "/", create: true}
	w.push(abs)
	if err := w.run(); err != nil {
		return Target{}, err
	}
	if strings.HasSuffix(path, "/") {
		return Target{}, ErrIsDir
	}
	if w.missing {
		rt, _ := r.containing(w.at) // allowed has checked that there is one
		return newTarget(location{root: rt, rel: rt.rel(w.at)}, w.links > 0), nil
	}
	p, err := w.end()
	switch {
	case err != nil:
		return Target{}, err
	case p.info.IsDir():
		return Target{}, ErrIsDir
	case !p.info.Mode().IsRegular():
		return Target{}, ErrNotRegular
	}
	return newTarget(p, w.links > 0), nil
}

// MakeFolder creates the folder at path and its parents, unless they exist. It returns the
// absolute path, with the links of the requested one.
func (r *Roots) MakeFolder(path string) (string, error) {
	shown, err := r.Absolute(path)
	if err != nil {
		return "", err
	}
	w := walk{roots: r, at: "/", create: true}
	w.push(shown)
	if err := w.run(); err != nil {
		return "", err
	}
	rt, _ := r.containing(w.at)
	p := location{root: rt, rel: rt.rel(w.at)}
	if !w.missing {
		if p, err = w.end(); err != nil {
			return "", err
		}
		if !p.info.IsDir() {
			return "", ErrNotDir
		}
	}
	dir, err := Target{folder: p}.OpenOrMake()
	if err != nil {
		return "", err
	}
	return contract.EscapeName(shown), dir.Close()
}

// TargetIn is the target called name in a folder known by its real path. It fails with
// ErrForbidden if the folder is in no root, because the roots may have changed since
// the path was resolved.
func (r *Roots) TargetIn(folder, name string) (Target, error) {
	rt, ok := r.containing(folder)
	if !ok || within(r.state, folder) {
		return Target{}, ErrForbidden
	}
	return Target{folder: location{root: rt, rel: rt.rel(folder)}, Name: name}, nil
}

func newTarget(p location, linked bool) Target {
	folder, name := p.parent()
	return Target{folder, name, linked}
}

// make steps to a name that does not exist. A root itself is never created: if Drive is
// not mounted, the file would be written to the VM's disk instead.
func (w *walk) make(name string) error {
	if len(name) > filename.MaxBytes {
		return fmt.Errorf("%w: a name longer than %d bytes", ErrBadPath, filename.MaxBytes)
	}
	next := filepath.Join(w.at, name)
	rt, err := w.allowed(next)
	if err != nil {
		return err
	}
	h, err := rt.open()
	if err != nil {
		return Classify(err)
	}
	h.Close()
	w.at, w.missing = next, true
	return nil
}

// OpenOrMake opens the folder, and creates it if it does not exist.
func (t Target) OpenOrMake() (*Dir, error) {
	dir, err := t.folder.openDir()
	if !errors.Is(err, ErrNotFound) {
		return dir, err
	}
	h, err := t.folder.root.open()
	if err != nil {
		return nil, Classify(err)
	}
	defer h.Close()
	if err := h.MkdirAll(t.folder.rel, 0o777); err != nil {
		return nil, WriteError(err)
	}
	return t.folder.openDir()
}

// OpenFolder opens the folder, which must exist.
func (t Target) OpenFolder() (*Dir, error) { return t.folder.openDir() }

// Folder is the folder's real path.
func (t Target) Folder() string { return t.folder.path() }
