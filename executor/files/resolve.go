package files

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

const (
	maxPath  = 4096 // bytes of a requested path: Linux's PATH_MAX
	maxLinks = 40   // links followed in one path: Linux's own limit
)

// location is where a path leads: a root, and a path inside it that contains no links. The
// root itself is ".".
type location struct {
	root root
	rel  string
	info fs.FileInfo // of the file or folder itself, never of a link
}

// path is the real path.
func (p location) path() string { return filepath.Join(p.root.real, p.rel) }

// resolve follows path link by link. Every step must be inside a root or on the way down
// to one. An absolute link target is followed from the top, because Drive's shortcuts are
// absolute. resolve does not open the file that path names.
func (r *Roots) resolve(path string) (location, error) {
	abs, err := r.Absolute(path)
	if err != nil {
		return location{}, err
	}
	p, err := r.follow(abs)
	if err != nil {
		return location{}, fmt.Errorf("path %q: %w", path, err)
	}
	return p, nil
}

// follow is resolve for a path that is absolute, clean and not escaped.
func (r *Roots) follow(abs string) (location, error) {
	w := walk{roots: r, at: "/"}
	w.push(abs)
	if err := w.run(); err != nil {
		return location{}, err
	}
	return w.end()
}

// Absolute makes a path of the contract absolute and clean, and unescapes it to its bytes
// on disk. ~ at its beginning is the home folder of the kernel's user. It refuses "..", because
// after a link that would mean one folder by its text and another one on disk.
func (r *Roots) Absolute(path string) (string, error) {
	if len(path) > maxPath {
		return "", fmt.Errorf("%w: longer than %d bytes", ErrBadPath, maxPath)
	}
	if rest, ok := filename.InHome(path); ok { // typed as \x7e, it is a name
		if r.home == "" {
			return "", fmt.Errorf("path %q: %w: the home folder is not known", path, ErrBadPath)
		}
		path = r.home + rest
	}
	path = contract.UnescapeName(path)
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q: %w: it contains a NUL byte", path, ErrBadPath)
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return "", fmt.Errorf("path %q: %w: it contains \"..\"", path, ErrForbidden)
	}
	if !strings.HasPrefix(path, "/") {
		return filepath.Join(r.workdir, path), nil
	}
	path = filepath.Clean(path)
	if !r.content && within(contentDir, path) {
		return filepath.Join(r.workdir, strings.TrimPrefix(path, contentDir)), nil
	}
	return path, nil
}

// containing is the innermost root that contains path, which must be free of links.
func (r *Roots) containing(path string) (root, bool) {
	var best root
	found := false
	for _, rt := range r.roots {
		if within(rt.real, path) && (!found || len(rt.real) > len(best.real)) {
			best, found = rt, true
		}
	}
	return best, found
}

// above reports whether path leads down to a root. Such a folder is never a link, because
// real paths contain none. It may be walked through but is never shown.
func (r *Roots) above(path string) bool {
	return slices.ContainsFunc(r.roots, func(rt root) bool { return within(path, rt.real) })
}

// real is path with a root's configured name replaced by its real path.
func (r *Roots) real(path string) string {
	for _, rt := range r.roots {
		if within(rt.name, path) {
			return rt.real + strings.TrimPrefix(path, rt.name)
		}
	}
	return path
}

// walk follows a path: at is the part that is done and free of links, pending is the rest.
type walk struct {
	roots   *Roots
	at      string
	pending []string
	links   int

	create  bool // missing folders are to be created
	missing bool // at does not exist
}

// push puts a path or link target in front of the pending segments.
func (w *walk) push(target string) {
	if strings.HasPrefix(target, "/") {
		w.at = "/"
		target = w.roots.real(target)
	}
	w.pending = append(strings.Split(target, "/"), w.pending...)
}

func (w *walk) run() error {
	for len(w.pending) > 0 {
		seg := w.pending[0]
		w.pending = w.pending[1:]
		switch seg {
		case "", ".":
		case "..": // only in link targets; at holds no links, so this is the real parent
			if w.missing {
				return ErrNotFound
			}
			w.at = filepath.Dir(w.at)
		default:
			if err := w.step(seg); err != nil {
				return err
			}
		}
	}
	return nil
}

// step follows one segment.
func (w *walk) step(seg string) error {
	err := w.enter(seg)
	if w.create && errors.Is(err, ErrNotFound) {
		return w.make(seg)
	}
	return err
}

func (w *walk) enter(name string) error {
	next := filepath.Join(w.at, name)
	rt, err := w.allowed(next)
	if err != nil {
		return err
	}
	if w.roots.above(next) {
		w.at = next
		return nil
	}
	if w.missing {
		return ErrNotFound
	}
	target, err := rt.readlink(next)
	if err != nil {
		return Classify(err)
	}
	if target == "" {
		w.at = next
		return nil
	}
	if w.links++; w.links > maxLinks {
		return fmt.Errorf("%w: more than %d links", ErrBadPath, maxLinks)
	}
	w.push(target)
	return nil
}

// allowed is the root that contains next. On the way down to a root, it is the zero root.
func (w *walk) allowed(next string) (root, error) {
	rt, ok := w.roots.containing(next)
	switch {
	case within(w.roots.state, next), IsPart(filepath.Base(next)):
		return rt, fmt.Errorf("%w: the executor's own files are not served", ErrForbidden)
	case !ok && !w.roots.above(next):
		return rt, w.roots.outside()
	}
	return rt, nil
}

func (w *walk) end() (location, error) {
	rt, ok := w.roots.containing(w.at)
	if !ok {
		return location{}, w.roots.outside()
	}
	p := location{root: rt, rel: rt.rel(w.at)}
	h, err := rt.open()
	if err != nil {
		return location{}, Classify(err)
	}
	defer h.Close()
	if p.info, err = h.Lstat(p.rel); err != nil {
		return location{}, Classify(err)
	}
	return p, nil
}

func (rt root) rel(path string) string {
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(path, rt.real), "/"), ".")
}

// readlink is the target of the link at path, or "" if path is not a link.
func (rt root) readlink(path string) (string, error) {
	h, err := rt.open()
	if err != nil {
		return "", err
	}
	defer h.Close()
	info, err := h.Lstat(rt.rel(path))
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		return "", err
	}
	target, err := h.Readlink(rt.rel(path))
	if errors.Is(err, syscall.EINVAL) { // it is no link any more
		err = ErrChanged
	}
	return target, err
}
