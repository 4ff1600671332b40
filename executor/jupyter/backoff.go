package jupyter

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstRetry = 5 * time.Millisecond
	// startingRetry is the longest wait before the first connection: it adds to
	// the time until a starting kernel is known to be ready.
	startingRetry = 40 * time.Millisecond
	// lostRetry is the longest wait after a connection was lost.
	lostRetry = time.Second
	// linkHeld is how long a connection must live to start over: a peer that hangs
	// up after each handshake is otherwise called without a pause.
	linkHeld = 2 * time.Second
)

// backoff is a jittered exponential wait between tries to connect.
type backoff struct {
	next    time.Duration
	longest time.Duration
}

// wait returns after the next pause, or when ctx ends.
func (b *backoff) wait(ctx context.Context) {
	if b.longest == 0 {
		b.longest = startingRetry
	}
	b.next = min(max(firstRetry, b.next*2), b.longest)
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// connected notes that a connection held for that long before it was lost.
func (b *backoff) connected(held time.Duration) {
	b.longest = lostRetry
	if held >= linkHeld {
		b.next = 0
	}
}
