package jupyter

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstRetry = 5 * time.Millisecond
	// startingRetry is the longest delay before the first connection. It adds to the
	// time that a kernel takes to start.
	startingRetry = 40 * time.Millisecond
	// lostRetry is the longest delay after a connection was lost.
	lostRetry = time.Second
	// stableAfter is how long a connection must have existed to reset the delay.
	// Otherwise a peer that hangs up after each handshake would be dialled in a loop.
	stableAfter = 2 * time.Second
)

// backoff waits between attempts to connect: the delay grows exponentially, with jitter.
type backoff struct {
	next    time.Duration
	longest time.Duration
}

// wait returns after the next delay, or when ctx ends.
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

// lost adjusts the delays to how long the lost connection existed.
func (b *backoff) lost(existed time.Duration) {
	b.longest = lostRetry
	if existed >= stableAfter {
		b.next = 0
	}
}
