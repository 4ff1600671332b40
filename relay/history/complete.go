package history

import (
	"context"
	"fmt"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// Complete fetches the events of a run that the history lacks and the VM still has, and the
// run's present state, and returns it. vm must report to this Store. It does not wait for a run
// that is still under way. The error is that of the VM: the history is readable after it too.
func (s *Store) Complete(ctx context.Context, vm client.ExecutionReader, run Run) (Run, error) {
	if err := s.Flush(ctx); err != nil {
		return run, err
	}
	found, err := read(s.cfg.Dir, run.key)
	if err != nil {
		return run, fmt.Errorf("read the run %q in the history: %w", run.ExecutionID, err)
	}
	for _, hole := range found.missing() {
		_, err = client.Follow(ctx, vm, contract.Execution{ExecutionID: run.ExecutionID}, client.FollowOptions{
			From: hole.Offset, Available: true, Instance: run.InstanceID, MaxBytes: contract.MaxReadBytes,
			Visit: func(e contract.Execution) bool { return e.NextOffset < hole.End() },
		})
		if err != nil {
			break
		}
	}
	if flushed := s.Flush(ctx); err == nil {
		err = flushed
	}
	if now, lost := summary(s.cfg.Dir, run.key); lost == nil {
		run = now
	}
	return run, err
}

// Lacks reports whether the VM may know more of a run than the history: the run had not ended,
// or events are missing.
func (s *Store) Lacks(run Run) bool {
	found, err := read(s.cfg.Dir, run.key)
	return err == nil && (!run.Status.Finished() || len(found.missing()) > 0)
}
