package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"colabrelay/shared/contract"
)

// mayLeaveStates is how many states the operations of a step may leave on the VM: those that a
// relay could not delete, because the kernel, the executor or the network failed just then.
func (s step) mayLeaveStates() (n int) {
	if !s.excuses().any(kernelEnds | executorEnds | networkFails) {
		return 0
	}
	for _, o := range s.operations {
		switch o.operation.(type) {
		case *state, *chunkedRun:
			n++
		}
	}
	return n
}

// endOldStates checks that no more states are left than faults excuse, and that the next save
// deletes them once they are a day old, as is promised.
func (s *suite) endOldStates(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(s.world.folder()), "tmp", contract.StateFolderPrefix+"*"))
	if err != nil || len(found) == 0 {
		return err
	}
	if len(found) > s.statesLeft {
		return fmt.Errorf("%d states are left on the VM, and faults excuse %d: %q", len(found), s.statesLeft, found)
	}
	s.tally.add("states left for a day", len(found))
	old := time.Now().Add(-25 * time.Hour)
	for _, folder := range found {
		if err := os.Chtimes(folder, old, old); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	_, err = (&scene{s, s.world.laptops[0], 0}).untilDone(ctx, "save_kernel_state", map[string]any{"name": "last"}, nil)
	return err
}
