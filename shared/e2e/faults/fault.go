package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"colabrelay/shared/e2e/harness"
)

// excuses are the outcomes, other than success, that the faults of a step allow.
type excuses int

const (
	kernelEnds   excuses = 1 << iota // runs may have ended with their kernel, or never begun
	executorEnds                     // runs may be lost or cancelled
	relayEnds                        // calls of the relay may have no answer
	networkFails                     // calls may end with an error of the network
	vmReplaced                       // what was on the VM is gone
)

func (e excuses) any(of excuses) bool { return e&of != 0 }

// fault is something that a step survives. strike returns when it is over and mended; an
// error means that the suite itself failed.
type fault struct {
	name    string
	excuses excuses
	kills   string // the process that it kills
	strike  func(ctx context.Context, w *world, p planned) (struck bool, err error)
}

// planned is a fault with what the plan chose for it.
type planned struct {
	fault *fault
	marks int           // it strikes when the step has left this many marks in the ledger,
	after time.Duration // or when the operations have ended, and then this much later
	lasts time.Duration // how long it lasts, if it does
	at    int           // number of the relay
}

func (p planned) String() string {
	return fmt.Sprintf("%s (%d marks, %d ms, for %d ms)", p.fault.name, p.marks, p.after.Milliseconds(), p.lasts.Milliseconds())
}

// kinds are all faults.
var kinds = []fault{
	{"kernel killed", kernelEnds, "kernel", killKernel},
	{"executor killed", executorEnds | kernelEnds | networkFails, "executor", func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.replaceExecutor(ctx, p.lasts, false)
	}},
	{"relay killed", relayEnds, "relay", func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.laptops[p.at].replace(ctx, (*harness.Host).Kill)
	}},
	{"tunnel cut", networkFails, "", func(ctx context.Context, w *world, p planned) (bool, error) {
		return true, w.network.cut(ctx, p.lasts)
	}},
}

func planFault(r *rand.Rand, laptops int) planned {
	return planned{
		fault: &kinds[r.IntN(len(kinds))],
		marks: r.IntN(6),
		after: time.Duration(r.IntN(300)) * time.Millisecond,
		lasts: time.Duration(r.IntN(1500)) * time.Millisecond,
		at:    r.IntN(laptops),
	}
}

// killKernel kills the kernel, as the system does when memory runs out.
func killKernel(_ context.Context, w *world, _ planned) (bool, error) {
	pid, err := w.kernelPID()
	return err == nil && send(pid, syscall.SIGKILL), nil // none if it ends or starts just now
}
