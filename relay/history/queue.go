package history

import (
	"slices"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

// Bounds of the reports that wait to be written, of all runtimes together. Beyond them, a
// report is dropped, and its events are missing from the history.
const (
	maxQueued      = 10_000
	maxQueuedBytes = 64 << 20
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
	n := 1000 + len(r.content)
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
	for mime, payload := range ev.Data {
		n += len(mime) + len(payload)
	}
	for _, line := range ev.Traceback {
		n += len(line)
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
	if q.closed || len(q.reports) >= maxQueued || q.bytes+size > maxQueuedBytes {
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

// take returns all reports.
func (q *queue) take() []report {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.reports
	q.reports, q.bytes = nil, 0
	return all
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
	q.waiting += change
	select {
	case q.hurry <- struct{}{}:
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
		s.writer.write(s.queue.take())
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
