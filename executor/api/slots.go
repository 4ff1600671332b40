package api

import (
	"sync"

	"colabrelay/shared/auth"
)

// slots limits the requests that wait for something. All callers share size slots. As many
// more are reserved for callers that have none, so that a caller with many requests can't
// keep others out.
type slots struct {
	size int

	mu        sync.Mutex
	total     int
	perCaller map[auth.Caller]int // without those that have none
}

func newSlots(size int) *slots { return &slots{size: size, perCaller: map[auth.Caller]int{}} }

// take takes a slot, which done releases. ok is false if none is free.
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
