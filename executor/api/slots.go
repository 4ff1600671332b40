package api

import (
	"sync"

	"colabrelay/shared/auth"
)

// slots bounds the requests that wait for something: most of them are for all, and as
// many again are for callers that hold none, so that one with many keeps no other out.
type slots struct {
	size int

	mu        sync.Mutex
	total     int
	perCaller map[auth.Caller]int // those that hold any
}

func newSlots(most int) *slots { return &slots{size: most, perCaller: map[auth.Caller]int{}} }

// take gives a place, which done gives back; ok is false when there is none.
func (p *slots) take(caller auth.Caller) (done func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total >= p.size && (p.perCaller[caller] > 0 || p.total >= 2*p.size) {
		return nil, false
	}
	p.total++
	p.perCaller[caller]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		if p.perCaller[caller]--; p.perCaller[caller] == 0 {
			delete(p.perCaller, caller)
		}
	}, true
}

// inUse is how many places are held.
func (p *slots) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
