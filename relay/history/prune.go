package history

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
)

const (
	maxRuns = 5000
	// pruneShare: a prune that deletes runs leaves this share of a bound free. At least so much is
	// written before the next look at the folder, because each look takes time in proportion to the
	// number of runs.
	pruneShare = 20
	// maxIndex is how large the index may be before it is written anew with one line a run.
	maxIndex = 8 << 20
	// staleAfter is how long after its start a run is taken for finished. No run takes longer
	// than contract.MaxTimeout, unless it waits for input.
	staleAfter = contract.MaxTimeout + time.Hour
	diskBlock  = 4096 // what a file takes at least
)

// prune deletes the oldest runs if the history is over its bounds. It looks at the folder only
// now and then.
func (w *writer) prune() error {
	if w.looked && w.grown < w.maxBytes/pruneShare && w.begun < maxRuns/pruneShare {
		return nil
	}
	w.looked, w.grown, w.begun = true, 0, 0
	return pruneTo(w.dir, w.maxBytes, maxRuns, time.Now())
}

// onDisk is one run's files.
type onDisk struct {
	names []string
	bytes int64
}

// pruneTo deletes runs if they take more than most bytes or are more than runs, until a
// pruneShare-th of the bound is free. Finished ones go first, the oldest first. Their lines leave
// the index before their files go: files without a line are what a killed program left.
func pruneTo(dir string, most int64, runs int, now time.Time) error {
	files, total, err := filesByRun(dir)
	if err != nil || total <= most && len(files) <= runs && total-bytesOf(files) <= min(maxIndex, most/4) {
		return err
	}
	listed, err := readIndex(dir)
	if err != nil {
		return err
	}
	cost := func(r Run) int64 { return files[r.key()].bytes + int64(len(indexLine(r.Head, r.Execution))) }
	total = 0
	for _, r := range listed {
		total += cost(r)
	}
	if total > most || len(listed) > runs {
		most, runs = most-most/pruneShare, runs-runs/pruneShare
	}
	left := len(listed)
	for _, unfinished := range []bool{false, true} {
		listed = slices.DeleteFunc(listed, func(r Run) bool {
			if total <= most && left <= runs || !unfinished && !r.Status.Finished() && now.Sub(r.Recorded) < staleAfter {
				return false
			}
			total, left = total-cost(r), left-1
			return true
		})
	}
	var index bytes.Buffer
	for _, r := range listed {
		index.Write(indexLine(r.Head, r.Execution))
	}
	if err := keep.WriteFile(filepath.Join(dir, indexName), index.Bytes()); err != nil {
		return err
	}
	for _, r := range listed {
		delete(files, r.key())
	}
	var failed error
	for _, gone := range files {
		for _, name := range gone.names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

func bytesOf(files map[string]onDisk) (sum int64) {
	for _, f := range files {
		sum += f.bytes
	}
	return sum
}

var runFiles = lazy.Regexp(`^[0-9a-f]{24}(\.[0-9a-f]{64}\.blob|\.ndjson)$`)

// filesByRun returns the files of each run, by its key, and how many bytes they and the index
// take. It ignores files that are not of the history.
func filesByRun(dir string) (files map[string]onDisk, total int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	files = map[string]onDisk{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || e.Name() != indexName && !runFiles().MatchString(e.Name()) {
			continue
		}
		size := (info.Size() + diskBlock - 1) / diskBlock * diskBlock
		total += size
		if key, _, _ := strings.Cut(e.Name(), "."); e.Name() != indexName {
			f := files[key]
			files[key] = onDisk{append(f.names, e.Name()), f.bytes + size}
		}
	}
	return files, total, nil
}
