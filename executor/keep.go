package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"colabrelay/executor/api"
)

// keepEvery is how often the state dir is looked at. It lies in the workdir, where
// `git clean -fdx` deletes it; until it is back, a second executor could take it.
const keepEvery = 2 * time.Second

// keepState makes a deleted state dir again until ctx ends.
func (x *executor) keepState(ctx context.Context, b api.Backend) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if !x.state.lost() {
			continue
		}
		err := x.state.comeBack()
		if err == nil {
			err = errors.Join(x.file.reopen(), b.Kernel.Record())
			b.Queue.RestoreJournal()
		}
		switch {
		case err == nil:
			x.log.Warn("the state dir was deleted; it is there again, with what was known", "component", "executor", "state_dir", x.state.dir)
		case !failing:
			x.log.Error("the state dir was deleted and can't be made again; it is tried until it works", "component", "executor", "err", err)
		}
		failing = err != nil
	}
}

// lost reports that the lock file is not the one that is held.
func (s *state) lost() bool {
	now, err := os.Stat(s.path(lockFile))
	return err != nil || !os.SameFile(now, s.locked)
}

// comeBack makes the folder, its lock and instance.json again. It takes nothing that
// another executor has taken meanwhile.
func (s *state) comeBack() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	lock, locked, err := lockState(s.dir)
	if err != nil {
		return err
	}
	file := s.path(instanceFile)
	if _, err := os.Stat(file); err != nil {
		if err := writeJSON(file, s.instance); err != nil {
			lock.Close()
			return err
		}
	}
	s.lock.Close()
	s.lock, s.locked = lock, locked
	return nil
}

// lockState takes the state dir for this process.
func lockState(dir string) (*flock.Flock, os.FileInfo, error) {
	path := filepath.Join(dir, lockFile)
	lock := flock.New(path, flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, nil, fmt.Errorf("locking the state dir %q: %w", dir, err)
	}
	if !ok {
		return nil, nil, fmt.Errorf("another executor uses the state dir %q: stop it, or give this one another --state-dir and --listen", dir)
	}
	info, err := os.Stat(path)
	if err != nil {
		lock.Close()
		return nil, nil, fmt.Errorf("locking the state dir %q: %w", dir, err)
	}
	return lock, info, nil
}
