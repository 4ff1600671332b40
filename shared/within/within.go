// Package within waits, in tests, for what another goroutine or process does. It has one
// generous bound, because no test may fail only because the machine is slow. Start reading at
// Until.
package within

import (
	"context"
	"testing"
	"time"
)

// Limit is the longest wait for anything that a test expects.
const Limit = 2 * time.Minute

// Context returns a context that ends after Limit, or with the test.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Until waits until a condition holds, and ends the test if it does not within Limit. what says
// what is waited for, such as "the kernel is idle".
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(Limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s in vain until %s", Limit, what)
		}
	}
}

// Receive waits for a value, or the end, of a channel, and ends the test if none comes within
// Limit. what names the value.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Limit):
		t.Fatalf("waited %s in vain for %s", Limit, what)
		panic("unreachable")
	}
}
