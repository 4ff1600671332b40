package enrolldir

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"colabrelay/shared/keep"
)

// Pattern matches the names of the folders that cells make.
const Pattern = "colab-relay-enroll-*"

// maxEnded bounds the folders of this user that one EndUnused looks at. Those of others, who
// may make many, do not count.
const maxEnded = 100

// WriteUsed records that the relay uses the executor, so that EndUnused spares it.
func (d *Dir) WriteUsed() error { return d.write(usedFile, true) }

// EndUnused ends the executors of other folders beside d that no relay has used yet, and
// returns when they have ended or ctx ends. A relay that was killed before it paired leaves
// such a one, which would occupy the state folder until its time is over.
func (d *Dir) EndUnused(ctx context.Context) {
	folders, _ := filepath.Glob(filepath.Join(filepath.Dir(d.path), Pattern)) // the pattern is right
	folders = slices.DeleteFunc(folders, func(folder string) bool { return folder == d.path || checkPrivate(folder) != nil })
	for _, folder := range folders[:min(len(folders), maxEnded)] {
		if unused(folder) {
			end(ctx, folder)
		}
	}
}

func unused(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, usedFile))
	return errors.Is(err, fs.ErrNotExist)
}

// end signals the process that holds the folder's lock, until it has ended or ctx ends.
func end(ctx context.Context, folder string) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for signalled := false; held(folder); {
		if pid := holder(folder); pid > 1 && !signalled {
			signalled = syscall.Kill(pid, syscall.SIGTERM) == nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// held reports whether a process has locked the folder.
func held(folder string) bool { return keep.IsLocked(filepath.Join(folder, lockFile)) }

// holder returns the process that has locked the folder, or 0.
func holder(folder string) (pid int) {
	text, err := readFile(filepath.Join(folder, pidFile), 32)
	if err != nil || json.Unmarshal([]byte(text), &pid) != nil {
		return 0
	}
	return pid
}
