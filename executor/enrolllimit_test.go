package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/enrollment"
)

func TestTheLimitsOfAnEnrollment(t *testing.T) {
	const never = 1000 * time.Hour
	for name, c := range map[string]struct {
		answered, used time.Duration // after the start
		ends           time.Duration
		cause          error
	}{
		"not reachable":           {never, never, enrollment.Lifetime, errLate},
		"not used":                {170 * time.Second, never, 350 * time.Second, errUnused},
		"used at the last moment": {179 * time.Second, 358 * time.Second, never, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				e := &enroller{answered: make(chan struct{}), used: make(chan struct{})}
				defer time.AfterFunc(c.answered, func() { close(e.answered) }).Stop()
				defer time.AfterFunc(c.used, func() { close(e.used) }).Stop()
				go e.limit(ctx, cancel)
				select {
				case <-ctx.Done():
				case <-time.After(c.ends - time.Nanosecond):
				}
				if ctx.Err() != nil {
					t.Fatalf("it ended early: %v", context.Cause(ctx))
				}
				<-time.After(time.Nanosecond)
				synctest.Wait()
				if got := context.Cause(ctx); !errors.Is(got, c.cause) {
					t.Errorf("the cause is %v, want %v", got, c.cause)
				}
			})
		})
	}
}
