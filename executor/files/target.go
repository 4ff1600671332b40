package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/shared/contract"
)

const (
	maxName  = 255 // bytes of a name: NAME_MAX of Linux's filesystems
	maxTaken = 999 // numbers tried for a name that is taken
)

// target is where a file is to go: a folder, which may have to be made, and a name.
type target struct {
	folder place
	name   string
}

// resolveNew is resolve for what may not exist yet: from the first name that is
// missing on, names only have to be usable. A link leads to its real place.
func (r *Roots) resolveNew(path string) (target, error) {
	abs, err := r.absolute(path)
	if err != nil {
		return target{}, err
	}
	w := walk{roots: r, at: "/", create: true}
	w.push(abs)
	if err := w.run(); err != nil {
		return target{}, err
	}
	if strings.HasSuffix(path, "/") {
		return target{}, ErrIsDir
	}
	if w.missing {
		rt, _ := r.containing(w.at) // it was looked for there
		return newTarget(place{root: rt, rel: rt.rel(w.at)}), nil
	}
	p, err := w.end()
	switch {
	case err != nil:
		return target{}, err
	case p.info.IsDir():
		return target{}, ErrIsDir
	case !p.info.Mode().IsRegular():
		return target{}, ErrNotRegular
	}
	return newTarget(p), nil
}

// makeFolder makes the folder at path, and those above it, and says where it is as
// the caller knows it. One that is there already is as good.
func (r *Roots) makeFolder(path string) (string, error) {
	shown, err := r.absolute(path)
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
	dir, err := target{folder: p}.open()
	if err != nil {
		return "", err
	}
	return contract.EscapeName(shown), dir.Close()
}

func newTarget(p place) target {
	folder, name := p.holder()
	return target{folder, name}
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
		return classify(err)
	}
	h.Close()
	w.at, w.missing = next, true
	return nil
}

// open opens the folder, and makes it when it is not there.
func (t target) open() (*os.Root, error) {
	dir, err := t.folder.openDir()
	if !errors.Is(err, ErrNotFound) {
		return dir, err
	}
	h, err := t.folder.root.open()
	if err != nil {
		return nil, classify(err)
	}
	defer h.Close()
	if err := h.MkdirAll(t.folder.rel, 0o777); err != nil {
		return nil, writing(err)
	}
	return t.folder.openDir()
}

// real is the folder's real path.
func (t target) real() string { return t.folder.path() }

// numbered is name with a number before its last extension, as "name (1).ext",
// cut where it would grow too long.
func numbered(name string, n int) string {
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
