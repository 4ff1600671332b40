package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"colabrelay/shared/contract"
)

// listBatch is how many entries are read from a folder in one call. ctx is checked between
// the calls.
const listBatch = 1024

// List returns a page of the folder at path: at most contract.MaxListFiles entries, sorted
// by name, whose names come after the given one. The counts cover the whole folder. An
// empty path means the workdir. A link is listed as its target, or as special if the target
// is not served.
//
// Consecutive pages of a folder come from one reading of it; see snapshots. Entries that
// exist throughout appear exactly once. Entries that are created or deleted between pages
// may or may not appear.
func (r *Roots) List(ctx context.Context, path, after string) (contract.Files, error) {
	p, err := r.resolve(path)
	if err != nil {
		return contract.Files{}, err
	}
	if !p.info.IsDir() {
		return contract.Files{}, fmt.Errorf("path %q: %w", path, ErrNotDir)
	}
	shown, err := r.Absolute(path)
	if err != nil {
		return contract.Files{}, err
	}
	l := listing{roots: r, at: p, shown: shown, after: after}
	out, err := l.run(ctx)
	if err != nil {
		return contract.Files{}, fmt.Errorf("folder %q: %w", path, err)
	}
	return out, nil
}

// listing is one page of a folder.
type listing struct {
	roots *Roots
	at    location
	shown string // the folder's absolute path as requested, with links
	after string // the last name of the previous page, escaped

	dir       *Dir
	ancestors []string // real paths of shown and of its parents; see isLoop
	snapshot
	partial bool // entries are only the first ones after after, because the folder is too large
	rest    int  // number of entries after after
}

type entry struct {
	name  string
	shown string // the escaped name, by which pages are sorted
	isDir bool
	loop  bool
}

func (l *listing) run(ctx context.Context) (contract.Files, error) {
	var err error
	if l.dir, err = l.at.openDir(); err != nil {
		return contract.Files{}, err
	}
	defer l.dir.Close()
	key := snapshotKey(l.at, l.shown)
	one, known := l.roots.snapshots.take(key)
	if known && l.after != "" {
		l.snapshot = one
	} else {
		l.key = key
		if err := l.read(ctx); err != nil {
			return contract.Files{}, Classify(err)
		}
	}
	page := l.page()
	if l.rest > len(page) && !l.partial {
		l.roots.snapshots.keep(l.snapshot)
	}
	return l.answer(page), nil
}

func (l *listing) read(ctx context.Context) error {
	f, err := l.dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	l.made = time.Now()
	for ctx.Err() == nil {
		batch, err := f.ReadDir(listBatch)
		for _, d := range batch {
			l.add(d)
		}
		if errors.Is(err, io.EOF) {
			l.sort()
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (l *listing) add(d fs.DirEntry) {
	path := l.real(d.Name())
	if within(l.roots.state, path) || IsPart(d.Name()) {
		return
	}
	e := entry{name: d.Name(), shown: contract.EscapeName(d.Name()), isDir: d.IsDir()}
	if d.Type()&fs.ModeSymlink != 0 {
		to, err := l.roots.follow(path)
		e.isDir = err == nil && to.info.IsDir()
		e.loop = e.isDir && l.isLoop(to)
	}
	if e.isDir {
		l.dirs++
	} else {
		l.files++
	}
	if e.shown > l.after {
		l.rest++
	} else if l.partial {
		return
	}
	l.entries = append(l.entries, e)
	l.bytes += e.bytes()
	if !l.partial && l.bytes > maxSnapshot {
		l.partial = true
		l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.shown <= l.after })
	}
	if l.partial && len(l.entries) >= 2*contract.MaxListFiles {
		l.cut()
	}
}

// isLoop reports whether a link to the folder to leads back to the listed folder. It takes
// the links of the requested path into account: if a/x is a link to b, then a link b/y to a
// is a loop when the folder is listed as a/x.
func (l *listing) isLoop(to location) bool {
	if l.ancestors == nil {
		for at := l.shown; ; at = filepath.Dir(at) {
			if p, err := l.roots.follow(at); err == nil {
				l.ancestors = append(l.ancestors, p.path())
			}
			if at == "/" {
				break
			}
		}
	}
	return slices.ContainsFunc(l.ancestors, func(at string) bool { return within(to.path(), at) })
}

func (l *listing) sort() {
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.shown, b.shown) })
}

// cut keeps the first MaxListFiles names.
func (l *listing) cut() {
	l.sort()
	l.entries = slices.Delete(l.entries, contract.MaxListFiles, len(l.entries))
}

// page is the entries of this page.
func (l *listing) page() []entry {
	from, found := slices.BinarySearchFunc(l.entries, l.after, func(e entry, after string) int { return strings.Compare(e.shown, after) })
	if found {
		from++
	}
	page := l.entries[from:]
	if !l.partial {
		l.rest = len(page)
	}
	return page[:min(len(page), contract.MaxListFiles)]
}

// answer adds the sizes and times of a page. Entries that were deleted since the folder was
// read are omitted and not counted.
func (l *listing) answer(page []entry) contract.Files {
	out := contract.Files{Path: contract.EscapeName(l.shown), Files: make([]contract.File, 0, len(page))}
	for _, e := range page {
		f, ok := l.file(e)
		switch {
		case ok:
			out.Files = append(out.Files, f)
		case e.isDir:
			l.dirs--
		default:
			l.files--
		}
	}
	out.FileCount, out.DirCount, out.Truncated = l.files, l.dirs, l.rest > len(page)
	return out
}

// file describes one entry. It uses only lstat, because opening a FIFO would hang and opening
// a device may have side effects.
func (l *listing) file(e entry) (contract.File, bool) {
	out := contract.File{
		Name:  e.shown,
		Path:  contract.EscapeName(filepath.Join(l.shown, e.name)),
		IsDir: e.isDir,
		Loop:  e.loop,
	}
	info, err := l.dir.Lstat(e.name)
	if err != nil {
		return out, false
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if to, err := l.roots.follow(l.real(e.name)); err == nil {
			info = to.info
		}
	}
	out.Modified = info.ModTime().UTC()
	out.Special = !info.Mode().IsRegular() && !info.IsDir()
	if info.Mode().IsRegular() {
		out.SizeBytes, out.Executable = info.Size(), info.Mode()&0o100 != 0
	}
	return out, true
}

// real is the real path of an entry.
func (l *listing) real(name string) string {
	return filepath.Join(l.at.root.real, l.at.rel, name)
}

const (
	keptSnapshots = 2
	// maxSnapshot is how many bytes one may take: some 150,000 names. A larger folder is read
	// again for every page.
	maxSnapshot = 16 << 20
	// keepSnapshot is how long pages may come from the same snapshot.
	keepSnapshot = 30 * time.Second
)

// snapshot is the entries of a folder when it was read.
type snapshot struct {
	key         string // see snapshotKey
	made        time.Time
	entries     []entry // sorted
	files, dirs int
	bytes       int64
}

// bytes estimates the memory of an entry.
func (e entry) bytes() int64 {
	n := 64 + len(e.name)
	if e.shown != e.name { // otherwise they are one string
		n += len(e.shown)
	}
	return int64(n)
}

// snapshots are kept of the last folders that are being listed page by page, because otherwise
// every page reads the whole folder. A first page always reads the folder, so a listing shows
// everything that existed when it began.
type snapshots struct {
	mu   sync.Mutex
	kept []snapshot // the newest last
}

// snapshotKey identifies a folder and the path by which it was requested, on which its
// loops depend.
func snapshotKey(at location, shown string) string {
	var inode uint64
	if st, ok := at.info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d %q %q", inode, at.path(), shown)
}

// take returns the snapshot of a folder, and keeps it no longer.
func (s *snapshots) take(key string) (one snapshot, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = slices.DeleteFunc(s.kept, func(kept snapshot) bool {
		if kept.key == key {
			one, ok = kept, time.Since(kept.made) < keepSnapshot
		}
		return kept.key == key
	})
	return one, ok
}

func (s *snapshots) keep(one snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, one)
	s.kept = slices.Delete(s.kept, 0, max(0, len(s.kept)-keptSnapshots))
}
