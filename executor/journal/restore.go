package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Restore writes again what the state directory held before it was deleted: the states
// of all executions and the tombstones. Output is lost, except that of logs that are
// still open. It returns how many states were missing. Without an error, all are on disk.
func (j *Journal) Restore() (missing int, err error) {
	j.mu.Lock()
	missing, err = j.restoreLocked()
	j.mu.Unlock()
	j.Flush()
	if err == nil && j.NeedsFlush() {
		err = errors.New("some states of executions can't be written yet")
	}
	return missing, err
}

// restoreLocked has the next flush write what is missing.
func (j *Journal) restoreLocked() (missing int, err error) {
	if err := os.MkdirAll(j.cfg.Dir, 0o700); err != nil {
		return 0, fmt.Errorf("making the deleted execution log's folder again: %w", err)
	}
	j.reserve.restore()
	for _, r := range j.order {
		if r.checkFile() {
			j.reserve.add(r, nil)
			missing++
		}
	}
	if missing > 0 {
		j.log.Warn("folders of executions were deleted; their states are saved again", "count", missing)
	}
	if err := j.tombstones.restore(); err != nil {
		return missing, fmt.Errorf("writing the deleted tombstones again: %w", err)
	}
	return missing, nil
}

// deleted reports whether an open file has been deleted: `git clean -fdx` in the
// workdir removes the state directory of a running executor. What is written to such
// a file is lost when it is closed.
func deleted(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}

// gone reports whether an open file has been deleted, or moved away with its folder.
func gone(f *os.File, path string) bool {
	info, err := f.Stat()
	named, nameErr := os.Lstat(path)
	return err == nil && (nameErr != nil || !os.SameFile(info, named))
}

// recreate makes a deleted file again with its content, and returns it instead of old,
// which is still open. After an error it returns old.
func recreate(path string, old *os.File, size int64, flag int) (*os.File, error) {
	fresh, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|flag, 0o600)
	if err != nil {
		return old, err
	}
	if _, err := io.Copy(fresh, io.NewSectionReader(old, 0, size)); err != nil {
		fresh.Close()
		return old, errors.Join(err, os.Remove(path))
	}
	old.Close()
	return fresh, nil
}
