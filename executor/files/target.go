package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/shared/contract"
)

// maxName is how many bytes a name may have: NAME_MAX of Linux's filesystems.
const maxName = 255

// Target is where a file is to go: a folder, which may have to be made, and a name.
type Target struct {
	folder place
	Name   string
}

// Target is resolve for what may not exist yet: from the first name that is
// missing on, names only have to be usable. A link leads to its real place.
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
		rt, _ := r.containing(w.at) // it was looked for there
		return newTarget(place{root: rt, rel: rt.rel(w.at)}), nil
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
	return newTarget(p), nil
}

// MakeFolder makes the folder at path, and those above it, and says where it is as
// the caller knows it. One that is there already is as good.
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
	p := place{root: rt, rel: rt.rel(w.at)}
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
	return Target{place{root: rt, rel: rt.rel(folder)}, name}, nil
}

func newTarget(p place) Target {
	folder, name := p.holder()
	return Target{folder, name}
}

// make takes a name that does not exist. A root itself is never made: where
// Drive is not mounted, a file would land on the VM's disk under its name.
func (w *walk) make(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("%w: a name longer than %d bytes", ErrBadPath, maxName)
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

// OpenOrMake opens the folder, and makes it when it is not there.
func (t Target) OpenOrMake() (*os.Root, error) {
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

// Open opens the folder, which must exist.
func (t Target) OpenFolder() (*os.Root, error) { return t.folder.openDir() }

// Folder is the folder's real path.
func (t Target) Folder() string { return t.folder.path() }

// Numbered is name with a number before its last extension, as "name (1).ext",
// cut where it would grow too long.
func Numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" || len(ext) > maxName/2 {
		stem, ext = name, ""
	}
	number := fmt.Sprintf(" (%d)", n)
	if room := maxName - len(number) - len(ext); len(stem) > room {
		stem = strings.ToValidUTF8(stem[:room], "")
	}
	return stem + number + ext
}
