package execution

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/executor/variables"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func doNothing(context.Context, *kernel.Kernel) error { return nil }

func inspect(ctx context.Context, k *kernel.Kernel) error {
	_, err := variables.Variables(ctx, k.Client)
	return err
}

// When several relays inspect the variables at the same time, none gets ErrKernelBusy.
func TestWithIdleKernelWaitsForAnotherCall(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := q.WithIdleKernel(t.Context(), inspect); err != nil {
				t.Errorf("WithIdleKernel = %v", err)
			}
		})
	}
	group.Wait()
	err := q.WithIdleKernel(t.Context(), func(ctx context.Context, _ *kernel.Kernel) error {
		began := time.Now()
		if err := q.WithIdleKernel(ctx, doNothing); !errors.Is(err, ErrKernelBusy) {
			t.Errorf("WithIdleKernel during a long call = %v", err)
		}
		if d := time.Since(began); d < soonFree {
			t.Errorf("WithIdleKernel waited %v, want at least %v", d, soonFree)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A caller that has read the end of an execution finds the kernel free.
func TestWithIdleKernelAfterTheEndOfAnExecutionFindsTheKernelFree(t *testing.T) {
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	for range 50 {
		q.run("None")
		if err := q.WithIdleKernel(t.Context(), doNothing); err != nil {
			t.Fatalf("WithIdleKernel = %v", err)
		}
	}
}

// Calls get the kernel between executions, although others always wait.
func TestWithIdleKernelGetsATurnInAQueueThatIsNeverEmpty(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	ctx, stop := context.WithCancel(t.Context())
	var submitting, calling sync.WaitGroup
	for range 3 {
		submitting.Go(func() {
			for ctx.Err() == nil {
				q.settle(q.submit("import time; time.sleep(.01)", 0))
			}
		})
	}
	for range 4 {
		calling.Go(func() {
			for range 5 {
				if err := q.WithIdleKernel(t.Context(), inspect); err != nil {
					t.Errorf("WithIdleKernel = %v", err)
				}
			}
		})
	}
	calling.Wait()
	stop()
	submitting.Wait()
}

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

// A call that waits gets the kernel when the only execution before it is cancelled.
func TestACallGetsTheKernelWhenWhatIsBeforeItIsCancelled(t *testing.T) {
	q := unstarted(t)
	q.add(t, "waits", "a")
	turn := make(chan struct{})
	q.guests.waiting = append(q.guests.waiting, turn)
	if !q.cancel(q.pending[0].ID, "") {
		t.Fatal("the execution did not wait")
	}
	select {
	case <-turn:
	default:
		t.Error("the call still waits")
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
