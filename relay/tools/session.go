package tools

import (
	"math"
	"sync"
	"time"
)

// When the end of a VM is told.
const (
	nearEnd = 30 * time.Minute
	// tellAgain keeps the last half hour from being told in every answer.
	tellAgain = 5 * time.Minute
)

// sessions remembers, for each runtime, when its VM is expected to end. The
// zero value is ready.
type sessions struct {
	mu   sync.Mutex
	last map[string]session // by runtime; there are as many as pairings
}

// session is what is known of one VM's life.
type session struct {
	instance string // a new VM behind the same name has a life of its own
	ends     time.Time
	told     time.Time // when a call was last warned
}

// note keeps an estimate and reports whether a call is to be warned of it now.
func (s *sessions) note(runtime, instance string, left time.Duration, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.last[runtime]
	if known.instance != instance {
		known = session{instance: instance}
	}
	known.ends = now.Add(left)
	due := left < nearEnd && now.Sub(known.told) >= tellAgain
	if due {
		known.told = now
	}
	if s.last == nil {
		s.last = map[string]session{}
	}
	s.last[runtime] = known
	return due
}

// left is the newest estimate brought up to now, in minutes and never under 0;
// nil where none is known.
func (s *sessions) left(runtime, instance string, now time.Time) *float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.last[runtime]
	if !ok || known.instance != instance {
		return nil
	}
	return round(max(0, known.ends.Sub(now).Minutes()), 10)
}

// sawSession warns of what an execution tells of the VM's end, in minutes: nil
// is nothing, 0 that the executor is ending, which each answer says.
func (c *call) sawSession(left *float64) {
	switch {
	case left == nil:
	case *left <= 0:
		c.warn("The executor is ending: call save_kernel_state and download_from_colab at once, while it still answers; variables that were not saved go with it. Once its cell was started again, restore_kernel_state brings the saved ones back.")
	default:
		c.sawLimit(*left)
	}
}

// sawLimit warns when the VM's published limit is near. A VM may outlive it, so
// 0 minutes mean no more than soon.
func (c *call) sawLimit(left float64) {
	soon := max(math.Ceil(left), 1)
	if c.sessions.note(c.target.Name, c.target.Client.InstanceID(), time.Duration(left*float64(time.Minute)), time.Now()) {
		c.warn("The VM is expected to end in about %.0f minutes: call save_kernel_state to keep the variables, download_from_colab for files.", soon)
	}
}

// sessionLeft is what is known of the VM's end without asking it; it warns, too.
func (c *call) sessionLeft() *float64 {
	left := c.sessions.left(c.target.Name, c.target.Client.InstanceID(), time.Now())
	if left != nil {
		c.sawLimit(*left)
	}
	return left
}
