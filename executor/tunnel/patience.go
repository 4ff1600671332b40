package tunnel

import (
	"sync"
	"time"
)

// patience turns answers of ngrok into the decision to give up. Codes that may
// pass are borne for a bounded time, counted from the first one; a session
// that came up starts the count anew.
type patience struct {
	limit time.Duration
	now   func() time.Time

	mu    sync.Mutex
	since time.Time // zero: nothing to bear
}

func newPatience(limit time.Duration) *patience {
	return &patience{limit: limit, now: time.Now}
}

// judge returns what to end with, or nil to try again.
func (p *patience) judge(err error) *Refused {
	verdict, refused := judge(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch verdict {
	case final:
		return refused
	case busy:
		if p.since.IsZero() {
			p.since = p.now()
		}
		if p.now().Sub(p.since) >= p.limit {
			return refused
		}
	}
	return nil
}

// restored says that the tunnel is up.
func (p *patience) restored() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}
