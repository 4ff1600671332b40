package tunnel

import (
	"errors"
	"fmt"
	"testing"
	"time"
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
