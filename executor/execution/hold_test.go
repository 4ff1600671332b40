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

func nothing(context.Context, *kernel.Kernel) error { return nil }

func look(ctx context.Context, life *kernel.Kernel) error {
	_, err := variables.Variables(ctx, life.Client)
	return err
}

// Two relays look at the variables at once: neither is told that a run holds the kernel.
func TestAHoldWaitsForAnotherHold(t *testing.T) {
	t.Parallel()
	q := start(t, stacks.Old(t), Config{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := q.WithIdleKernel(t.Context(), look); err != nil {
				t.Errorf("Hold = %v", err)
			}
		})
	}
	group.Wait()
	err := q.WithIdleKernel(t.Context(), func(ctx context.Context, _ *kernel.Kernel) error {
		began := time.Now()
		if err := q.WithIdleKernel(ctx, nothing); !errors.Is(err, ErrKernelBusy) {
			t.Errorf("Hold during a long one = %v", err)
		}
		if d := time.Since(began); d < holdPatience || d > holdPatience+5*time.Second {
			t.Errorf("Hold gave up after %v, want %v", d, holdPatience)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Who has read the end of an execution finds the kernel free.
func TestAHoldAfterTheEndOfAnExecutionFindsTheKernelFree(t *testing.T) {
	t.Parallel()
	q := start(t, stacks.Old(t), Config{})
	for range 100 {
		q.run("None")
		if err := q.WithIdleKernel(t.Context(), nothing); err != nil {
			t.Fatalf("Hold = %v", err)
		}
	}
}
