package journal

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Restore writes again what the state directory held before it was deleted: the states
// of all executions and the tombstones. Output is lost, except that of logs that are
// still open. Flush does the rest.
func (j *Journal) Restore() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.restoreLocked()
}

func (j *Journal) restoreLocked() {
	if err := os.MkdirAll(j.cfg.Dir, 0o700); err != nil {
		j.log.Error("making the deleted execution log's folder again", "err", err)
		return
	}
	j.reserve.restore()
	count := 0
	for _, r := range j.order {
		if r.checkFile() {
			j.reserve.add(r, nil)
			count++
		}
	}
	if count > 0 {
		j.log.Warn("folders of executions were deleted; their states are saved again", "count", count)
	}
	if err := j.tombstones.restore(); err != nil {
		j.log.Error("writing the deleted tombstones again", "err", err)
	}
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
