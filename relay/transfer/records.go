package transfer

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of the records in the relay's own folder. Records beside destinations have none: they
// are few in each folder.
const (
	maxOrigins = 1000 // downloaded folders that later calls may continue; the oldest are forgotten
	maxDone    = 16   // records of unfinished folder downloads
	maxLocks   = 100  // lock files that killed downloads left
)

// records is where a download keeps its locks, and its records about folders: in the relay's
// own folder or, without one, beside the destination. In a person's folder they would be
// uploaded, committed and copied with the person's files.
type records struct {
	root   *os.Root
	prefix string // of names in root; empty beside the destination
	shared bool   // root is the destination
}

// openRecords returns the records about destinations in root. dir is the relay's own folder,
// or "". It must be closed.
func openRecords(dir string, root *os.Root) (records, error) {
	if dir == "" {
		return besides(root), nil
	}
	own, err := openLocal(dir)
	if err != nil {
		return records{}, err
	}
	real, err := filepath.EvalSymlinks(root.Name()) // a folder may have several spellings
	if err != nil {
		real = root.Name()
	}
	return records{root: own, prefix: real + "\x00"}, nil
}

// besides returns records in the destination itself.
func besides(root *os.Root) records { return records{root: root, shared: true} }

func (r records) close() {
	if !r.shared {
		_ = r.root.Close()
	}
}

// name returns the name in r.root of the record about name in the destination.
func (r records) name(name, suffix string) string { return hiddenName(r.prefix+name, suffix) }

// lock reserves name in the destination for one download, across processes. It returns
// ErrBusy if another download has reserved it.
func (r records) lock(destination *os.Root, name string) (unlock func(), err error) {
	return lockFile(filepath.Join(r.root.Name(), r.name(name, lockSuffix)), absolute(destination, name))
}

// prune removes the oldest records beyond the bounds, and locks that nobody holds.
func (r records) prune() {
	if r.shared {
		return
	}
	for suffix, most := range map[string]int{originSuffix: maxOrigins, doneSuffix: maxDone} {
		for _, old := range oldest(r.root, suffix, most) {
			_ = r.root.Remove(old)
		}
	}
	for _, old := range oldest(r.root, lockSuffix, maxLocks) {
		if file := filepath.Join(r.root.Name(), old); strings.HasPrefix(old, hiddenPrefix) {
			if unlock, err := lockFile(file, file); err == nil {
				unlock() // removes it
			}
		}
	}
}

// oldest returns the names of the oldest files with a suffix beyond the newest `most`.
func oldest(root *os.Root, suffix string, most int) []string {
	entries, err := os.ReadDir(root.Name())
	if err != nil {
		return nil
	}
	type file struct {
		name string
		at   time.Time
	}
	var all []file
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			all = append(all, file{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	var names []string
	for _, f := range all[:max(0, len(all)-most)] {
		names = append(names, f.name)
	}
	return names
}
