package execution

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"colabrelay/executor/kernel"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// What waits when an execution ends comes before the next one, and no more than that.
func TestCallsAndExecutionsTakeTurns(t *testing.T) {
	q := unstarted(t)
	visit := func() chan struct{} {
		turn := make(chan struct{})
		q.guests.waiting = append(q.guests.waiting, turn)
		return turn
	}
	has := func(turn chan struct{}) bool {
		select {
		case <-turn:
			return true
		default:
			return false
		}
	}
	q.add(t, "running", "a")
	q.add(t, "next", "a")
	q.next()
	first, second := visit(), visit()
	q.yield()
	if !has(first) || has(second) || q.next() != nil {
		t.Fatalf("after the execution, the first call has the kernel: %t, the second: %t", has(first), has(second))
	}
	late := visit()
	q.giveBack()
	if !has(second) || has(late) || q.next() != nil {
		t.Fatalf("after the first call, the second has the kernel: %t, the late one: %t", has(second), has(late))
	}
	q.giveBack()
	if s := q.next(); has(late) || s == nil || s.code != "next" {
		t.Fatalf("after the calls that waited, the late one has the kernel: %t, the next execution is %v", has(late), s)
	}
	q.yield()
	if !has(late) {
		t.Error("the late call did not get the kernel after the next execution")
	}
}

// One call more than may wait is refused at once. One that gives up makes room.
func TestCallsThatWaitAreBounded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	err := q.WithIdleKernel(t.Context(), func(context.Context, *kernel.Kernel) error {
		var last chan struct{}
		for n := range maxGuests {
			turn, err := q.visit()
			if err != nil {
				return fmt.Errorf("call %d: %w", n, err)
			}
			last = turn
		}
		if _, err := q.visit(); !errors.Is(err, ErrKernelBusy) {
			return fmt.Errorf("one call too many: %v", err)
		}
		if err := q.leave(last, nil); !errors.Is(err, ErrKernelBusy) {
			return fmt.Errorf("the call that gives up: %v", err)
		}
		_, err := q.visit()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
