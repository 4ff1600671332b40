package execution

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/executor/variables"
	"colabrelay/shared/stacks"
)

func doNothing(context.Context, *kernel.Kernel) error { return nil }

func inspect(ctx context.Context, k *kernel.Kernel) error {
	_, err := variables.Variables(ctx, k.Client)
	return err
}

// When several relays inspect the variables at the same time, none gets ErrKernelBusy.
func TestWithIdleKernelWaitsForAnotherCall(t *testing.T) {
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
		if d := time.Since(began); d < soonFree || d > soonFree+5*time.Second {
			t.Errorf("WithIdleKernel waited %v, want %v", d, soonFree)
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
