package tunnel

import (
	"sync"
	"time"
)

// patience turns refusals into the decision to give up. Codes that may
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
	if verdict == final || verdict == busy && p.spent() {
		return refused
	}
	return nil
}

// bear returns err, to try again, or refused once it was borne for long enough.
func (p *patience) bear(err error, refused *Refused) error {
	if p.spent() {
		return refused
	}
	return err
}

// spent starts the count, and says whether its time is over.
func (p *patience) spent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = p.now()
	}
	return p.now().Sub(p.since) >= p.limit
}

// restored says that the tunnel is up.
func (p *patience) restored() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}
