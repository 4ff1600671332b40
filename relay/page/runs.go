package page

import (
	"fmt"
	"sync"
	"time"
)

// maxRuns bounds the runs that a tab remembers: those in progress, and those whose end no
// caller has seen. Beyond it no run starts.
const maxRuns = 500

// runs are the runs of a tab's cells, by the cell's id.
type runs struct {
	mu         sync.Mutex
	known      map[string]*run
	lost       bool
	goroutines sync.WaitGroup
}

// run is one run of a cell.
type run struct {
	id      string
	started time.Time
	done    chan struct{} // closed when the run has ended
	of      *runs
	waiting int // callers that wait
	left    int // callers that were told that the cell runs, and have not come back
	result  Result
	err     error
	ended   time.Time
	dropped bool // no caller waited for the result: it must be read from the cell
}

// join returns the run of a cell that is in progress, or has ended without a caller that saw
// it within the time of unread. Otherwise it begins one with start, in a goroutine.
func (s *runs) join(id string, unread time.Duration, start func(*run)) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.known {
		if !r.ended.IsZero() && r.waiting == 0 && time.Since(r.ended) > unread {
			delete(s.known, key)
		}
	}
	r := s.known[id]
	switch {
	case r != nil:
		r.left = max(r.left-1, 0)
	case s.lost:
		return nil, ErrTabLost
	case len(s.known) >= maxRuns:
		return nil, fmt.Errorf("%d cells run in Colab, or have ended without a call that waited for them: wait for those first", maxRuns)
	default:
		r = &run{id: id, started: time.Now(), done: make(chan struct{}), of: s}
		if s.known == nil {
			s.known = map[string]*run{}
		}
		s.known[id] = r
		s.goroutines.Go(func() { start(r) })
	}
	r.waiting++
	return r, nil
}

// end records how a run ended.
func (r *run) end(result Result, err error) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.result, r.err, r.ended = result, err, time.Now()
	r.drop()
	close(r.done)
}

// drop frees a result that nobody waits for.
func (r *run) drop() {
	if r.waiting == 0 {
		r.result, r.dropped = Result{}, true
	}
}

// leave says that a caller no longer waits. It returns false if the run has ended: the caller
// must take its result.
func (s *runs) leave(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.ended.IsZero() {
		return false
	}
	r.waiting--
	r.left++
	return true
}

// take returns how a run ended, to a caller that waited. dropped says that its result must be
// read from the cell.
func (s *runs) take(r *run) (result Result, err error, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, err, dropped = r.result, r.err, r.dropped
	r.waiting--
	r.drop()
	if r.waiting == 0 && r.left == 0 && s.known[r.id] == r {
		delete(s.known, r.id)
	}
	return result, err, dropped
}

// running reports whether a run of a cell is in progress.
func (s *runs) running(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.known[id]
	return r != nil && r.ended.IsZero()
}

// forget lets the next call start the cell anew.
func (s *runs) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, id)
}

// wait returns when no run is in progress. No other one begins.
func (s *runs) wait() {
	s.mu.Lock()
	s.lost = true
	s.mu.Unlock()
	s.goroutines.Wait()
}
