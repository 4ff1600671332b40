// Package files serves the VM's files inside a few allowed roots: the working directory,
// the Drive mount, the temp folder and the folders that --allow-path adds.
//
// It must not open anything but folders and regular files, follow a link out of the
// roots, or show the state dir and the hidden files of uploads. The roots contain mistakes
// and careless agents. They do not stop a malicious caller, who may run any Python code as
// the same user. What code of another user can reach is decided by Linux: see Dir. Start reading at Roots.resolve, which every path goes through.
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

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/partfile"
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
	r := &Roots{user: user, state: state.real}
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

// PartSuffix ends the names of the hidden files that uploads are received in.
const PartSuffix = partfile.Suffix

// IsPart reports whether a name is reserved for files that are being uploaded. They are
// neither listed nor served, because a copy of one would have holes.
func IsPart(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, PartSuffix)
}
