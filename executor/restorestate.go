package main

import (
	"context"
	"errors"
	"time"

	"colabrelay/executor/api"
)

// checkStateEvery is how often the state dir is checked. It lies in the workdir,
// where `git clean -fdx` deletes it. Until it is restored, a second executor could
// use it.
const checkStateEvery = 2 * time.Second

// restoreState restores the state dir whenever it was deleted, until ctx ends.
func (x *executor) restoreState(ctx context.Context, b api.Backend) error {
	tick := time.NewTicker(checkStateEvery)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if !x.state.Deleted() {
			continue
		}
		err := x.state.Restore()
		if err == nil {
			err = errors.Join(x.file.Reopen(), b.Kernel.Record())
			b.Queue.RestoreJournal()
		}
		switch {
		case err == nil:
			x.log.Warn("the state folder was deleted; it was restored from memory", "component", "executor", "state_dir", x.cfg.stateDir)
		case !failing:
			x.log.Error("the state folder was deleted and can't be restored yet; the executor keeps trying", "component", "executor", "err", err)
		}
		failing = err != nil
	}
}
