package main

import (
	"context"
	"errors"
	"time"

	"colabrelay/executor/api"
)

const (
	// checkStateEvery is how often the state dir is checked. It lies in the workdir,
	// where `git clean -fdx` deletes it. Until it is restored, a second executor could
	// use it, and one that is started after a kill has another instance_id.
	checkStateEvery = 100 * time.Millisecond
	// settleTime is after what time a restored state dir is looked at again, until nothing was
	// missing, because the program that deletes it may take a while. A failed attempt is
	// repeated after it, too.
	settleTime = 2 * time.Second
)

// restoreState restores the state dir whenever it was deleted, until ctx ends.
func (x *executor) restoreState(ctx context.Context, b api.Backend) error {
	tick := time.NewTicker(checkStateEvery)
	defer tick.Stop()
	var again <-chan time.Time
	for failing := false; ; {
		due := false
		select {
		case <-tick.C:
		case <-again:
			due = true
		case <-ctx.Done():
			return nil
		}
		deleted := x.state.Deleted()
		if !due && (!deleted || failing) {
			continue
		}
		missing := 0
		err := x.state.Restore(func() (err error) {
			missing, err = b.Journal.Restore()
			jobs, jobsErr := b.Jobs.Restore()
			missing += jobs
			return errors.Join(err, jobsErr)
		})
		if deleted && err == nil {
			err = b.Kernel.Record()
		}
		if again = nil; deleted || missing > 0 || err != nil {
			again = time.After(settleTime)
		}
		switch {
		case err == nil && deleted:
			x.log.Warn("the state folder was deleted; it was restored from memory", "component", "executor", "state_dir", x.cfg.stateDir)
		case err != nil && !failing:
			x.log.Error("the state folder was deleted and can't be restored yet; the executor keeps trying", "component", "executor", "err", err)
		}
		failing = err != nil
	}
}
