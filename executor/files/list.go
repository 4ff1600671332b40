package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

// listBatch is how many entries are read from a folder at once; ctx is looked at
// between batches.
const listBatch = 1024

// List is the folder at path, sorted by name: the names after the one given, at
// most contract.MaxListFiles; the counts are of all. An empty path means the
// workdir. A link counts as what it leads to, or as special when that is not served.
//
// Pages of one folder that follow each other come from one reading of it, see
// snapshots. Names that are there throughout appear exactly once; those that come or go
// meanwhile may appear or not.
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
	at    place
	shown string // the folder as the caller knows it, links included
	after string // the last name of the page before this one, as it was answered

	dir *os.Root
	way []string // real paths of shown and of the folders above it, once asked for
	snapshot
	partial bool // entries are the first ones past after: all of them were too many
	rest    int  // entries past after
}

type entry struct {
	name  string
	shown string // name escaped: the order of pages is by what the caller sees
	isDir bool
	loop  bool
}

func (l *listing) run(ctx context.Context) (contract.Files, error) {
	var err error
	if l.dir, err = l.at.openDir(); err != nil {
		return contract.Files{}, err
	}
	defer l.dir.Close()
	key, known := snapshotKey(l.at, l.shown), false
	if l.after != "" {
		l.snapshot, known = l.roots.snapshots.take(key)
	}
	if !known {
		if err := l.read(ctx); err != nil {
			return contract.Files{}, Classify(err)
		}
	}
	page := l.page()
	if l.rest > len(page) && !l.partial {
		l.roots.snapshots.keep(key, l.snapshot)
	} else {
		l.roots.snapshots.drop(key)
	}
	return l.answer(page), nil
}

func (l *listing) read(ctx context.Context) error {
	l.roots.snapshots.reads.Add(1)
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
		e.loop = e.isDir && l.passed(to)
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
	if !l.partial && l.bytes > l.roots.snapshots.most {
		l.partial = true
		l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.shown <= l.after })
	}
	if l.partial && len(l.entries) >= 2*contract.MaxListFiles {
		l.cut()
	}
}

// passed reports whether the way to the listed folder leads through to, links on it
// followed: a link of b to a, found as a/b, leads back as well.
func (l *listing) passed(to place) bool {
	if l.way == nil {
		for at := l.shown; ; at = filepath.Dir(at) {
			if p, err := l.roots.follow(at); err == nil {
				l.way = append(l.way, p.path())
			}
			if at == "/" {
				break
			}
		}
	}
	return slices.ContainsFunc(l.way, func(at string) bool { return within(to.path(), at) })
}

func (l *listing) sort() {
	slices.SortFunc(l.entries, func(a, b entry) int { return strings.Compare(a.shown, b.shown) })
}

// cut keeps the first MaxListFiles names.
func (l *listing) cut() {
	l.sort()
	clear(l.entries[min(len(l.entries), contract.MaxListFiles):])
	l.entries = l.entries[:min(len(l.entries), contract.MaxListFiles)]
}

// page is the entries to answer with.
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

// answer looks up size and time of a page. An entry that has gone since the folder was
// read is left out and not counted.
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

// file is one entry as it is answered, by lstat alone: opening a FIFO would hang
// and opening a device may do anything.
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
		out.SizeBytes = info.Size()
	}
	return out, true
}

// real is the real path of an entry.
func (l *listing) real(name string) string {
	return filepath.Join(l.at.root.real, l.at.rel, name)
}
