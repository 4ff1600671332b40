package history

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// pruneShare: a prune that deletes runs leaves this share of a bound free. At least so much is
// written before the next look at the folder, because each look takes time in proportion to the
// number of runs. spareShare is the share of the free space after which another look is due:
// several programs may be writing.
const (
	pruneShare = 20
	spareShare = 4
)

// lockName is the file of the lock that a program holds while it prunes.
const lockName = "prune.lock"

// diskBlock is what a file takes at least.
const diskBlock = 4096

// onDisk is one run's files.
type onDisk struct {
	key     string
	files   []string
	bytes   int64
	newest  time.Time // when one of them was last written
	hasHead bool
}

// prune deletes the oldest runs if the history is over its bounds. It looks at the folder only
// now and then, and leaves the work to another program that does it already.
func (w *writer) prune() {
	if w.written < w.nextBytes && w.created < w.nextRuns {
		return
	}
	unlock, err := keep.TryLock(filepath.Join(w.dir, lockName))
	if err != nil {
		return
	}
	defer unlock()
	bytes, runs, err := pruneTo(w.dir, w.maxBytes, maxRuns, time.Now())
	w.written, w.created = 0, 0
	w.nextBytes = max(w.maxBytes/pruneShare, (w.maxBytes-bytes)/spareShare)
	w.nextRuns = max(maxRuns/pruneShare, (maxRuns-runs)/spareShare)
	if err != nil && !w.faulty {
		w.log.Warn("old runs of the history cannot be deleted", "err", err)
		w.faulty = true
	}
}

// pruneTo deletes runs until those that are left take at most most bytes less one
// pruneShare-th, and are at most runs less one pruneShare-th. Finished ones go first, the
// oldest first. It returns what is left.
func pruneTo(dir string, most int64, runs int, now time.Time) (total int64, left int, failed error) {
	all, total, err := filesByRun(dir)
	if err != nil {
		return 0, 0, err
	}
	all = slices.DeleteFunc(all, func(r *onDisk) bool {
		if r.hasHead || now.Sub(r.newest) < time.Hour {
			return false
		}
		failed = errors.Join(failed, r.remove(dir)) // what a killed program left
		total -= r.bytes
		return true
	})
	left = len(all)
	if total <= most && left <= runs {
		return total, left, failed
	}
	most, runs = most-most/pruneShare, runs-runs/pruneShare
	slices.SortFunc(all, func(a, b *onDisk) int { return a.newest.Compare(b.newest) })
	for _, any := range []bool{false, true} {
		all = slices.DeleteFunc(all, func(r *onDisk) bool {
			if total <= most && left <= runs || !any && !r.finished(dir, now) {
				return false
			}
			failed = errors.Join(failed, r.remove(dir))
			total -= r.bytes
			left--
			return true
		})
	}
	return total, left, failed
}

// filesByRun returns the runs in a folder, and how many bytes they take. It ignores files that
// are not of the history.
func filesByRun(dir string) (all []*onDisk, total int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	byKey := map[string]*onDisk{}
	for _, e := range entries {
		key, suffix, _ := strings.Cut(e.Name(), ".")
		info, err := e.Info()
		if err != nil || !keyPattern().MatchString(key) || !info.Mode().IsRegular() || !ofRun("."+suffix) {
			continue
		}
		r := byKey[key]
		if r == nil {
			r = &onDisk{key: key}
			byKey[key] = r
			all = append(all, r)
		}
		size := (info.Size() + diskBlock - 1) / diskBlock * diskBlock
		r.files, r.bytes, total = append(r.files, e.Name()), r.bytes+size, total+size
		r.hasHead = r.hasHead || "."+suffix == headSuffix
		if info.ModTime().After(r.newest) {
			r.newest = info.ModTime()
		}
	}
	return all, total, nil
}

func ofRun(suffix string) bool {
	sum, blob := strings.CutSuffix(strings.TrimPrefix(suffix, "."), blobSuffix)
	return slices.Contains(suffixes, suffix) || blob && contract.SHA256Pattern().MatchString(sum)
}

// finished reports whether a run has ended, as far as is known.
func (r *onDisk) finished(dir string, now time.Time) bool {
	if now.Sub(r.newest) > staleAfter {
		return true
	}
	run, err := summary(dir, r.key)
	return err != nil || run.Status.Finished()
}

// remove deletes a run's files, the head first: without it, the others count as remains.
func (r *onDisk) remove(dir string) error {
	slices.SortFunc(r.files, func(a, b string) int { return len(a) - len(b) })
	var failed error
	for _, name := range r.files {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
