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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
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
		if r.instance == "" || !contract.RequestIDPattern().MatchString(r.e.ExecutionID) {
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

// flush appends the pending lines.
func (w *writer) flush(run *openRun) error {
	if run.pending.Len() == 0 {
		return nil
	}
	text := run.pending.Bytes()
	if run.exists { // another program may have been killed while it wrote a line
		text = append([]byte("\n"), text...)
	}
	defer run.pending.Reset()
	size := int64(len(text))
	if run.full = run.full || run.head > 0 && run.head+size > w.runBytes()/2; run.full {
		return w.appendTail(run, text)
	}
	flags := os.O_WRONLY | os.O_APPEND
	if !run.exists {
		flags |= os.O_CREATE
	}
	if err := w.append(run.key+headSuffix, flags, text); err != nil {
		return err
	}
	run.exists = true
	run.head += size
	return nil
}

// appendTail appends to the tail, and replaces the older tail when this one is full.
func (w *writer) appendTail(run *openRun, text []byte) error {
	if _, err := os.Stat(filepath.Join(w.dir, run.key+headSuffix)); err != nil {
		return err // another program pruned it
	}
	if run.tail > 0 && run.tail+int64(len(text)) > w.runBytes()/4 {
		if err := os.Rename(filepath.Join(w.dir, run.key+tailSuffix), filepath.Join(w.dir, run.key+oldSuffix)); err != nil {
			return err
		}
		run.tail = 0
	}
	if err := w.append(run.key+tailSuffix, os.O_WRONLY|os.O_APPEND|os.O_CREATE, text); err != nil {
		return err
	}
	run.tail += int64(len(text))
	return nil
}

// append appends text to a file by one write.
func (w *writer) append(name string, flags int, text []byte) error {
	path := filepath.Join(w.dir, name)
	f, err := bounded.OpenFile(path, flags)
	if errors.Is(err, fs.ErrNotExist) && flags&os.O_CREATE != 0 {
		if err := os.MkdirAll(w.dir, 0o700); err != nil {
			return err
		}
		f, err = bounded.OpenFile(path, flags)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	w.written += int64(len(text))
	w.faulty = false
	return nil
}

// keep keeps a payload that was fetched, as far as the run's bound allows.
func (w *writer) keep(run *openRun, r *report) error {
	if err := w.flush(run); err != nil {
		return err
	}
	size := int64(len(r.content))
	if run.blobs < 0 {
		run.blobs = blobBytes(w.dir, run.key)
	}
	if run.blobs+size > w.runBytes() {
		return nil
	}
	path := blobPath(w.dir, run.key, r.blob.SHA256)
	if info, err := os.Stat(path); err == nil && info.Size() == size {
		return nil
	}
	run.blobs += size
	w.written += size
	return os.WriteFile(path, r.content, 0o600)
}

// blobBytes returns how many bytes of payloads are kept of a run.
func blobBytes(dir, key string) (sum int64) {
	entries, _ := os.ReadDir(dir) // a folder that cannot be read has none
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), key) && strings.HasSuffix(e.Name(), blobSuffix) {
			sum += info.Size()
		}
	}
	return sum
}

// Bounds of the reports that wait to be written, of all runtimes together. Beyond them, a
// report is dropped, and its events are missing from the history.
const (
	maxQueued      = 10_000
	maxQueuedBytes = memory.History // also of those that are being written
	// forLarge is the part of both bounds that is for large reports: what a VM floods the relay
	// with leaves room for the usual runs of others.
	forLarge    = 0.75
	largeReport = 64 << 10
)

// report is one thing that a client reported. It shares memory with what the client's
// caller got, which nobody changes.
type report struct {
	runtime  string
	instance string
	submit   *contract.Submit // of a submit
	e        contract.Execution
	blob     *contract.Blob // fetched, with its content; e has the id alone
	content  []byte
}

// size returns about how much memory r keeps from being freed.
func (r *report) size() int64 {
	n := 1000 + len(r.content) + len(r.e.RequestID) + len(r.e.KernelID) + len(r.e.Status) + len(r.e.Reason) + len(r.e.CodePreview)
	if err := r.e.Error; err != nil {
		n += len(err.EName) + len(err.EValue) + textSize(err.Traceback)
	}
	if r.submit != nil {
		n += len(r.submit.Code) + len(r.submit.Source) + len(r.submit.SourceName)
	}
	for i := range r.e.Events {
		n += eventSize(&r.e.Events[i])
	}
	return int64(n)
}

func eventSize(ev *contract.Event) int {
	n := 300 + len(ev.Text) + len(ev.Metadata) + len(ev.EValue) + len(ev.Prompt)
	if ev.Data != nil {
		n += 400 // of a map
	}
	for mime, payload := range ev.Data {
		n += len(mime) + len(payload)
	}
	return n + textSize(ev.Traceback)
}

func textSize(lines []string) (n int) {
	for _, line := range lines {
		n += len(line) + 16
	}
	return n
}

// queue holds reports until a goroutine writes them. That goroutine exists only while there
// are reports.
type queue struct {
	mu      sync.Mutex
	reports []report
	bytes   int64
	done    chan struct{} // closed when the goroutine ends; nil while there is none
	closed  bool
	waiting int           // callers of Flush: the goroutine does not delay
	hurry   chan struct{} // ends its delay

	full once
}

// add appends a report, and reports whether the caller must start the goroutine.
func (q *queue) add(r report) (start, added bool) {
	size := r.size()
	q.mu.Lock()
	defer q.mu.Unlock()
	part := 1.0
	if size > largeReport {
		part = forLarge
	}
	if q.closed || len(q.reports) >= maxQueued || q.bytes+size > int64(part*maxQueuedBytes) {
		return false, q.closed
	}
	q.reports = append(q.reports, r)
	q.bytes += size
	if q.done != nil {
		return false, true
	}
	q.done = make(chan struct{})
	return true, true
}

// take returns all reports. They count until wrote is called with their size.
func (q *queue) take() (all []report, size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.reports = q.reports, nil
	for i := range all {
		size += all[i].size()
	}
	return all, size
}

func (q *queue) wrote(size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= size
}

// ended reports whether there are no reports, so that the goroutine must end.
func (q *queue) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.reports) > 0 {
		return false
	}
	close(q.done)
	q.done = nil
	return true
}

// wait begins or ends the wait of a caller of Flush. It returns a channel that is closed when
// all reports are written, or nil if they are.
func (q *queue) wait(change int) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting += change; q.waiting > 0 {
		select {
		case q.hurry <- struct{}{}:
		default:
		}
		return q.done
	}
	select {
	case <-q.hurry: // the next reports may be delayed again
	default:
	}
	return q.done
}

// mayDelay reports whether nobody waits for the goroutine.
func (q *queue) mayDelay() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting == 0
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (s *Store) report(r report) {
	start, added := s.queue.add(r)
	if !added {
		s.queue.full.do(func() {
			s.cfg.Log.Warn("some output is missing from the history, because it arrived faster than the disk could store it")
		})
	}
	if start {
		go s.write()
	}
}

// write writes reports until there are none.
func (s *Store) write() {
	for {
		s.pause()
		all, size := s.queue.take()
		s.writer.write(all)
		s.queue.wrote(size)
		if s.queue.ended() {
			return
		}
	}
}

func (s *Store) pause() {
	if !s.queue.mayDelay() {
		return
	}
	delay := time.NewTimer(s.delay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case <-s.queue.hurry:
	}
}

// recorder implements client.Recorder for one runtime.
type recorder struct {
	store   *Store
	runtime string
}

func (r *recorder) Submitted(instanceID string, s contract.Submit, e contract.Execution) {
	r.store.report(report{runtime: r.runtime, instance: instanceID, submit: &s, e: e})
}

func (r *recorder) Answered(instanceID string, e contract.Execution) {
	r.store.report(report{runtime: r.runtime, instance: instanceID, e: e})
}

func (r *recorder) Fetched(instanceID, executionID string, blob contract.Blob, content []byte) {
	r.store.report(report{
		runtime: r.runtime, instance: instanceID, e: contract.Execution{ExecutionID: executionID},
		blob: &blob, content: slices.Clip(content),
	})
}
