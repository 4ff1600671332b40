package history

import (
	"slices"
	"sync"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

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
