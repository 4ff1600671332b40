package jupyter

import (
	"sync"
	"time"
)

const (
	// shareTimeout is how long a big message waits until others give memory back. The print
	// before it may have 200 MiB, which takes a second to write to the log.
	shareTimeout = 5 * time.Second
	// unshared is how many bytes of a message each socket may hold without a share, so that
	// no small message ever waits.
	unshared = bigMessage
)

// share is the memory for big messages of all sockets together, from their arrival until
// they are released: four sockets that each held one of the largest, and others that waited,
// took gigabytes. A message that gets no share is treated as one over the bound.
type share struct {
	bound int64
	ended <-chan struct{} // nobody waits afterwards

	mu      sync.Mutex
	used    int64
	stalled bool          // a message has waited in vain since bytes were given back
	given   chan struct{} // closed when bytes are given back, then replaced
}

func newShare(bound int64, ended <-chan struct{}) *share {
	return &share{bound: bound, ended: ended, given: make(chan struct{})}
}

// take reports whether it took n bytes. It waits for them while bytes are given back, however
// slowly, but not if the last message waited in vain: whatever holds the memory, the other sockets
// go on.
func (s *share) take(n int64) bool {
	timer := time.NewTimer(shareTimeout)
	defer timer.Stop()
	for {
		taken, given := s.try(n)
		if taken || given == nil {
			return taken
		}
		select {
		case <-given:
			timer.Reset(shareTimeout)
		case <-timer.C:
			s.mu.Lock()
			s.stalled = true
			s.mu.Unlock()
		case <-s.ended:
			return false
		}
	}
}

// try takes n bytes if they are free. If not, given is closed when that may have changed, and
// nil if waiting is of no use.
func (s *share) try(n int64) (taken bool, given <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n <= s.bound {
		s.used += n
		return true, nil
	}
	if s.stalled || n > s.bound {
		return false, nil
	}
	return false, s.given
}

// give returns what take took.
func (s *share) give(n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	s.stalled = false
	close(s.given)
	s.given = make(chan struct{})
}
