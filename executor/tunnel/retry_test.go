package tunnel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheGiveUpTimerStartsAtTheFirstRefusalSinceTheTunnelWasUp(t *testing.T) {
	now := time.Now()
	status := &Status{giveUp: 3 * time.Minute, now: func() time.Time { return now }}
	refused := fmt.Errorf("log in: %w", &Refused{Temporary: true})
	step := func(d time.Duration, want bool) {
		t.Helper()
		now = now.Add(d)
		if got := status.Refusal(refused) != nil; got != want {
			t.Fatalf("gave up: %t, want %t", got, want)
		}
	}
	step(0, false)
	step(2*time.Minute, false)
	if status.Refusal(errors.New("no route to host")) != nil {
		t.Fatal("a network fault ended the tunnel")
	}
	status.Up()
	step(2*time.Minute, false)
	step(2*time.Minute, false)
	step(time.Minute, true)
}

func TestRetryDelaysGrowAndStartAgainAfterAStableConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lasts := []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, time.Minute, 0}
		var ended time.Time
		var delays []time.Duration
		err := NewRetry(Logger(nil)).Run(ctx, nil, func(context.Context, *Status) error {
			if !ended.IsZero() {
				delays = append(delays, time.Since(ended))
			}
			if len(delays) == len(lasts)-1 {
				cancel()
			}
			<-time.After(lasts[len(delays)])
			ended = time.Now()
			return errors.New("connection reset")
		})
		if err != nil {
			t.Error(err)
		}
		if first := delays[0]; first < firstDelay/2 || first > 2*firstDelay {
			t.Errorf("the first delay is %v", first)
		}
		if late := delays[8]; late < lastDelay/3 || late > 2*lastDelay {
			t.Errorf("a late delay is %v", late)
		}
		if again := delays[9]; again > 2*firstDelay {
			t.Errorf("the delay after a stable connection is %v", again)
		}
	})
}

func TestRetryEndsWithTheRefusalItself(t *testing.T) {
	final := &Refused{By: "test", Explanation: "never"}
	err := NewRetry(Logger(nil)).Run(t.Context(), nil, func(context.Context, *Status) error {
		return fmt.Errorf("log in: %w", final)
	})
	if err != final {
		t.Errorf("it ended with %v", err)
	}
}

func TestOnlyAChangedURLIsReported(t *testing.T) {
	var reported []string
	status := &Status{ready: func(url string) { reported = append(reported, url) }}
	for _, url := range []string{"a", "a", "b", "a"} {
		status.URL(url)
	}
	if diff := cmp.Diff([]string{"a", "b", "a"}, reported); diff != "" {
		t.Error(diff)
	}
}
