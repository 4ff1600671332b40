package api

import (
	"context"
	"net/http"
	"sync"

	"colabrelay/shared/auth"
)

// places bounds the requests that wait for something: most of them are for all, and as
// many again are for callers that hold none, so that one with many keeps no other out.
type places struct {
	most int

	mu    sync.Mutex
	total int
	held  map[auth.Caller]int // those that hold any
}

func newPlaces(most int) *places { return &places{most: most, held: map[auth.Caller]int{}} }

// take gives a place, which done gives back; ok is false when there is none.
func (p *places) take(caller auth.Caller) (done func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total >= p.most && (p.held[caller] > 0 || p.total >= 2*p.most) {
		return nil, false
	}
	p.total++
	p.held[caller]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		if p.held[caller]--; p.held[caller] == 0 {
			delete(p.held, caller)
		}
	}, true
}

// taken is how many places are held.
func (p *places) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

type callerKey struct{}

// withCaller notes who signed the request.
func withCaller(r *http.Request, caller auth.Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, caller))
}

// callerOf is who signed the request; zero before that is known.
func callerOf(r *http.Request) auth.Caller {
	caller, _ := r.Context().Value(callerKey{}).(auth.Caller)
	return caller
}
