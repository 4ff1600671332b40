package history

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
	"colabrelay/shared/memory"
)

// writeDelay is how long a report waits before it is written: the answer leaves first,
// and several reports of one run are written together.
const writeDelay = 50 * time.Millisecond

// Bounds of the reports that wait to be written, of all runtimes together. Beyond them, a
// report is dropped, and its events are missing from the history.
const (
	maxQueuedBytes = memory.History // also of those that are being written
	// forLarge is the part of the bound that is for large reports: what a VM floods the relay
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

// queue holds reports until they are written. Nothing waits or runs while there are none.
type queue struct {
	mu      sync.Mutex
	reports []report
	bytes   int64         // of them, and of those that are being written
	timer   *time.Timer   // calls write
	idle    chan struct{} // closed when everything is written; nil if it is
	closed  bool
	dropped bool
}

// add appends a report, and has write called after a delay unless it is under way. It reports
// whether the report is the first one that found no room.
func (q *queue) add(r report, delay time.Duration, write func()) (firstDropped bool) {
	size, part := r.size(), 1.0
	if size > largeReport {
		part = forLarge
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return false
	case q.bytes+size > int64(part*maxQueuedBytes):
		firstDropped, q.dropped = !q.dropped, true
		return firstDropped
	}
	q.reports = append(q.reports, r)
	q.bytes += size
	if q.idle == nil {
		q.idle = make(chan struct{})
		q.timer = time.AfterFunc(delay, write)
	}
	return false
}

// take returns all reports, after those of so many bytes have been written. It returns none if
// there are none, and the next report has write called again.
func (q *queue) take(written int64) (all []report, size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= written
	all, q.reports = q.reports, nil
	if len(all) == 0 {
		close(q.idle)
		q.idle = nil
	}
	return all, q.bytes
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (s *Store) report(r report) {
	if s.queue.add(r, s.delay, s.write) {
		s.log.Warn("some output is missing from the history, because it arrived faster than the disk could store it")
	}
}

// write writes reports until there are none.
func (s *Store) write() {
	for all, size := s.queue.take(0); len(all) > 0; all, size = s.queue.take(size) {
		s.writer.write(all)
	}
}

// Flush waits until everything that was reported is written, or ctx ends. It begins at once.
func (s *Store) Flush(ctx context.Context) error {
	s.queue.mu.Lock()
	idle := s.queue.idle
	if idle != nil && s.queue.timer.Stop() {
		go s.write()
	}
	s.queue.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lockName is the file of the lock that a program holds while it changes the history, and
// lockLimit how long another one waits for it before its reports count as lost.
const (
	lockName  = "history.lock"
	lockLimit = 10 * time.Second
)

// Bounds of a run, of whose file an append reads the edges alone.
const (
	maxRunBytes = 16 << 20 // of its file, and of its payloads; a smaller history allows an eighth of its bytes
	maxRanges   = 200      // of the offsets in the file
	edgeBytes   = 64 << 10
)

// writer appends reports to the files of their runs. It is used by one goroutine at a time.
type writer struct {
	dir      string
	maxBytes int64
	log      *slog.Logger
	faulty   bool                  // the last fault was logged
	first    atomic.Pointer[error] // the first fault because of which something is missing

	looked bool  // since the start, at what the folder takes
	grown  int64 // bytes since that look
	begun  int   // runs since that look
}

// runBytes returns the bound of one run's file.
func (w *writer) runBytes() int64 { return min(maxRunBytes, w.maxBytes/8) }

func (w *writer) write(all []report) {
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	unlock, err := keep.Lock(ctx, filepath.Join(w.dir, lockName))
	if err != nil {
		w.lost(err)
		return
	}
	defer unlock()
	byRun, order := map[string][]report{}, []string(nil)
	for _, r := range all {
		if r.instance == "" || !contract.RequestIDPattern().MatchString(r.e.ExecutionID) {
			continue
		}
		key := keyOf(r.instance, r.e.ExecutionID)
		if byRun[key] == nil {
			order = append(order, key)
		}
		byRun[key] = append(byRun[key], r)
	}
	for _, key := range order {
		if err := w.record(key, byRun[key]); err != nil {
			w.lost(err)
		}
	}
	if err := w.prune(); err != nil {
		w.fault("old runs of the history cannot be deleted", err)
	}
}

func (w *writer) lost(err error) {
	w.fault("runs are missing from the history", err)
	w.first.CompareAndSwap(nil, &err)
}

// fault logs the first of several faults.
func (w *writer) fault(what string, err error) {
	if !w.faulty {
		w.log.Warn(what, "err", err)
	}
	w.faulty = true
}

// record appends what was reported of one run. Of a run whose end is known, only what is missing
// is accepted: an answer that comes later changes neither its outcome nor its output. The index
// precedes the events: whoever is killed in between leaves a run whose output is known to be missing.
func (w *writer) record(key string, reports []report) error {
	f, err := w.open(key, reports)
	if f == nil || err != nil {
		return err
	}
	defer f.Close()
	before, marked := f.mark.State, encode(line{Mark: &f.mark})
	for _, r := range reports {
		if next, ok := follows(f.mark.State, stateOf(r.e, maxStateText)); ok && r.blob == nil && encode(line{State: &next}) != nil {
			f.mark.State = next
		}
	}
	f.mark.Full = f.mark.Full || f.size > f.most
	if f.mark.Full && !f.mark.State.Status.Finished() {
		f.mark.State = before // an executor may invent a status as often as it is asked
	}
	if f.mark.State.Status != before.Status || f.mark.State.End != before.End {
		if err := w.list(f); err != nil {
			return err
		}
	}
	for _, r := range reports {
		f.add(r.e.Events)
		if err := w.keep(key, f, r); err != nil {
			return err
		}
	}
	if mark := encode(line{Mark: &f.mark}); !bytes.Equal(mark, marked) {
		f.append(mark)
	}
	w.grown += f.size - f.was
	w.faulty = false
	return f.out.Flush()
}

// list appends a line about a run to the index.
func (w *writer) list(f *runFile) error {
	index, err := bounded.OpenFile(filepath.Join(w.dir, indexName), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	text := append([]byte("\n"), indexLine(f.head, f.mark.State)...) // a killed program may have left half a line
	w.grown += int64(len(text))
	_, err = index.Write(text)
	return errors.Join(err, index.Close())
}

func indexLine(h Head, state contract.Execution) []byte {
	state = stateOf(state, maxTitle)
	return encode(line{Head: &h, State: &state})
}

// keep keeps a payload that was fetched, as far as the run's bound allows.
func (w *writer) keep(key string, f *runFile, r report) error {
	size := int64(len(r.content))
	if r.blob == nil || !contract.SHA256Pattern().MatchString(r.blob.SHA256) || f.mark.Blobs+size > f.most {
		return nil
	}
	path := blobPath(w.dir, key, r.blob.SHA256)
	if info, err := os.Stat(path); err == nil && info.Size() == size {
		return nil
	}
	f.mark.Blobs += size
	w.grown += size
	return os.WriteFile(path, r.content, 0o600)
}

// runFile is a run's file to which its owner, who has the lock, appends.
type runFile struct {
	*os.File
	head      Head
	mark      mark
	most      int64 // its bound
	was, size int64 // its bytes at the beginning, and with what is appended
	out       *bufio.Writer
}

// open opens the file of a run; nil for one that is not in the history: it was submitted
// elsewhere, or has been pruned.
func (w *writer) open(key string, reports []report) (*runFile, error) {
	flags, begin := os.O_RDWR|os.O_APPEND, slices.IndexFunc(reports, func(r report) bool { return r.submit != nil })
	if begin >= 0 {
		flags |= os.O_CREATE
	}
	file, err := bounded.OpenFile(runPath(w.dir, key), flags)
	if errors.Is(err, fs.ErrNotExist) && begin < 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := &runFile{File: file, most: w.runBytes(), out: bufio.NewWriter(file)}
	err = f.load()
	if err == nil && f.head.ID == "" { // new, or whoever created it was killed
		if begin < 0 {
			return nil, file.Close()
		}
		var code string
		f.head, code = headOf(&reports[begin], int(f.most/4))
		f.append(encode(line{Head: &f.head}))
		f.append(encode(line{Code: &code}))
		w.begun++
		err = f.out.Flush()
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

// load reads the head and the last mark. If a program was killed while it appended, it reads all.
func (f *runFile) load() error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	f.was, f.size = info.Size(), info.Size()
	if f.size == 0 {
		return nil
	}
	first, err := io.ReadAll(io.NewSectionReader(f, 0, edgeBytes))
	if err != nil {
		return err
	}
	last := first
	if f.was > edgeBytes {
		if last, err = io.ReadAll(io.NewSectionReader(f, f.was-edgeBytes, edgeBytes)); err != nil {
			return err
		}
	}
	beginning, _, _ := bytes.Cut(bytes.TrimLeft(first, "\n"), []byte("\n"))
	if l, ok := decode(append(slices.Clip(beginning), '\n')); ok && l.Head != nil {
		f.head = *l.Head
		from := bytes.LastIndexByte(bytes.TrimSuffix(last, []byte("\n")), '\n') + 1
		if l, ok := decode(last[from:]); ok && l.Mark != nil {
			f.mark = *l.Mark
			return nil
		}
	}
	all, err := readAll(io.NewSectionReader(f, 0, f.was))
	f.head, f.mark = all.head, all.mark
	f.mark.Have = all.have()
	return err
}

// append appends a line. The error of a write is that of the next Flush.
func (f *runFile) append(text []byte) {
	if f.size == f.was && f.was > 0 { // whoever wrote last may have been killed in a line
		_ = f.out.WriteByte('\n')
		f.size++
	}
	_, _ = f.out.Write(text)
	f.size += int64(len(text))
}

// add appends those of the events that are missing, until one finds no room.
func (f *runFile) add(events []contract.Event) {
	for i := range events {
		ev := &events[i]
		at, ok := rangeOf(ev)
		if f.mark.Full || !ok || eventSize(ev) > maxEventLine || len(f.mark.Have.Missing(at)) == 0 || ended(f.mark.State) && at.End() > f.mark.State.NextOffset {
			continue
		}
		text := encode(line{Event: ev})
		if len(text) == 0 || int64(len(text)) > min(maxEventLine, f.most/4) {
			continue
		}
		if f.mark.Full = f.size+int64(len(text)) > f.most; f.mark.Full {
			return
		}
		if have := f.mark.Have.Add(at); len(have) <= maxRanges {
			f.mark.Have = have
			f.append(text)
		}
	}
}

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
