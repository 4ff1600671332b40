package history

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// Bounds of what the writer remembers of runs that are under way. Beyond the first, it reads
// the file of the least recent one again; beyond the second, it drops events.
const (
	maxOpen   = 64
	maxRanges = 1000
)

// flushBytes is how many bytes of lines are appended at a time; less in a small history.
const flushBytes = 256 << 10

// writer appends reports to the files of their runs. It is used by one goroutine at a time.
// Other programs may append to the same files: each append is one write of whole lines.
type writer struct {
	dir      string
	maxBytes int64
	log      *slog.Logger
	open     map[string]*openRun // by key
	uses     int64
	faulty   bool                  // the last fault was logged
	first    atomic.Pointer[error] // the first fault because of which something is missing

	written, nextBytes int64 // since the last prune, and when the next is due
	created, nextRuns  int
}

// openRun is what the writer remembers of a run.
type openRun struct {
	key     string
	have    ranges.Set         // offsets of the events in the files
	state   []byte             // the last state line
	last    contract.Execution // the last state
	end     int64              // offset after the last event; -1 while the run goes on
	head    int64              // bytes of the files
	tail    int64
	blobs   int64        // of the payloads; -1 while it is unknown
	pending bytes.Buffer // lines to append
	used    int64
	exists  bool // the head file exists
	full    bool // the head file is full
}

// runBytes returns the bound of one run's events.
func (w *writer) runBytes() int64 { return min(maxRunBytes, w.maxBytes/8) }

func (w *writer) write(all []report) {
	touched := map[string]*openRun{}
	for i := range all {
		r := &all[i]
		if r.instance == "" || !contract.RequestIDPattern.MatchString(r.e.ExecutionID) {
			continue
		}
		key := keyOf(r.instance, r.e.ExecutionID)
		run, err := w.run(key, r)
		if err == nil && run != nil {
			touched[key] = run
			err = w.add(run, r)
		}
		w.report(key, err)
	}
	for key, run := range touched {
		w.report(key, w.flush(run))
		if run.complete() {
			delete(w.open, key)
		}
	}
	w.close()
	w.prune()
}

// report logs the first of several faults, and forgets what it remembered of the run.
func (w *writer) report(key string, err error) {
	switch {
	case err == nil:
		return
	case errors.Is(err, fs.ErrNotExist): // another program pruned it
	case !w.faulty:
		w.log.Warn("runs are missing from the history", "err", err)
		w.faulty = true
		w.first.CompareAndSwap(nil, &err)
	}
	delete(w.open, key)
}

// run returns the run of a report; nil for one that is not in the history: it was submitted
// elsewhere, or has been pruned.
func (w *writer) run(key string, r *report) (*openRun, error) {
	w.uses++
	if run := w.open[key]; run != nil && w.alone(run) {
		run.used = w.uses
		return run, nil
	}
	run := &openRun{key: key, used: w.uses, end: -1}
	found, err := read(w.dir, key)
	run.exists = !errors.Is(err, fs.ErrNotExist)
	switch isNew := !run.exists || errors.Is(err, errNoHead); {
	case isNew && r.submit == nil:
		return nil, nil
	case isNew:
		w.begin(run, r)
	case err != nil:
		return nil, fmt.Errorf("read a run of the history: %w", err)
	default:
		run.have, run.blobs = found.have, -1
		if run.last = found.state; ended(run.last) {
			run.end = run.last.NextOffset
		}
		run.head, run.tail, run.full = found.sizes[headSuffix], found.sizes[tailSuffix], found.sizes[tailSuffix]+found.sizes[oldSuffix] > 0
	}
	w.open[key] = run
	return run, nil
}

// alone reports whether no other program has appended to the files of a run since this one last
// did: it may have recorded the end.
func (w *writer) alone(run *openRun) bool {
	for suffix, known := range map[string]int64{headSuffix: run.head, tailSuffix: run.tail} {
		info, err := os.Stat(filepath.Join(w.dir, run.key+suffix))
		if err == nil && info.Size() != known {
			return false
		}
	}
	return true
}

// close forgets the least recent runs.
func (w *writer) close() {
	if excess := len(w.open) - maxOpen; excess > 0 {
		byUse := slices.SortedFunc(maps.Values(w.open), func(a, b *openRun) int { return cmp.Compare(a.used, b.used) })
		for _, run := range byUse[:excess] {
			delete(w.open, run.key)
		}
	}
}

func (w *writer) begin(run *openRun, r *report) {
	h := headOf(r)
	if most := int(w.runBytes() / 4); len(h.Code) > most {
		h.Code, h.CodeCut = shorten(h.Code, most), true
	}
	run.pending.Write(encode(line{Head: &h}))
	w.created++
}

// add adds the lines of a report. Of a run whose end is known, only what is missing is accepted:
// an answer that comes later changes neither its outcome nor its output.
func (w *writer) add(run *openRun, r *report) error {
	if r.blob != nil {
		return w.keep(run, r)
	}
	if run.complete() {
		return nil
	}
	for i := range r.e.Events {
		ev := &r.e.Events[i]
		at, ok := rangeOf(ev)
		if !ok || eventSize(ev) > maxEventLine || len(run.have.Missing(at)) == 0 || run.end >= 0 && at.End() > run.end {
			continue
		}
		text := encode(line{Event: ev})
		if text == nil || int64(len(text)) > min(maxEventLine, w.runBytes()/4) {
			continue
		}
		have := extend(run.have, at)
		if len(have) > maxRanges {
			continue
		}
		run.have = have
		run.pending.Write(text)
		if int64(run.pending.Len()) >= min(flushBytes, w.runBytes()/8) {
			if err := w.flush(run); err != nil {
				return err
			}
		}
	}
	w.addState(run, stateOf(r.e))
	return nil
}

// addState adds the line of a state, if it may follow the last one.
func (w *writer) addState(run *openRun, state contract.Execution) {
	next, ok := follows(run.last, state)
	if !ok {
		return
	}
	if run.last = next; ended(next) {
		run.end = next.NextOffset
	}
	if text := encode(line{State: &next}); !bytes.Equal(text, run.state) || run.pending.Len() > 0 {
		run.state = text
		run.pending.Write(text)
	}
}

// complete reports whether nothing of the run is missing, so that nothing more is accepted.
func (run *openRun) complete() bool { return run.end >= 0 && run.have.Prefix() >= run.end }

// staleAfter is how long after its last line a run is taken for finished. No run takes longer
// than contract.MaxTimeout, unless it waits for input.
const staleAfter = contract.MaxTimeout + time.Hour
