package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/google/uuid"

	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// recover reads all executions in the journal's folder, and those in the reserve that
// are not in folders of their own.
func (j *Journal) recover() error {
	var reserved map[string]stateLine
	j.reserve, reserved = openReserve(j.cfg.Dir, j.log)
	found, err := j.readFolders(reserved)
	if err != nil {
		return err
	}
	for id, line := range reserved {
		if _, forgotten := j.tombstones.byID(id); forgotten {
			continue
		}
		r := j.recoverRecord(filepath.Join(j.cfg.Dir, id), line)
		if line.Status.Finished() { // its folder does not say so yet
			r.file.unsaved = true
			j.reserve.add(r, ErrDiskFull)
		}
		found = append(found, r)
	}
	// Not by id, which is random.
	slices.SortFunc(found, func(a, b *Record) int { return a.state.CreatedAt.Compare(b.state.CreatedAt) })
	for _, r := range found {
		j.addLocked(r) // no other goroutine has the journal yet
	}
	return nil
}

// readFolders reads the executions that have folders, and removes from reserved those
// whose folder says more.
func (j *Journal) readFolders(reserved map[string]stateLine) ([]*Record, error) {
	folders, err := os.ReadDir(j.cfg.Dir)
	if err != nil {
		return nil, err
	}
	var found []*Record
	for _, folder := range folders {
		if !folder.IsDir() || uuid.Validate(folder.Name()) != nil { // set aside, or of a user
			continue
		}
		dir := filepath.Join(j.cfg.Dir, folder.Name())
		line, ok := j.readFolder(dir)
		if _, newer := reserved[line.ExecutionID]; !ok || newer && !line.Status.Finished() {
			continue
		}
		delete(reserved, line.ExecutionID)
		found = append(found, j.recoverRecord(dir, line))
	}
	return found, nil
}

// readFolder returns the last state of a folder. A spare folder, and one whose deletion
// was interrupted, are deleted. One without a state is renamed: its request_id is unknown,
// unless a kill has torn it before its submit was answered.
func (j *Journal) readFolder(dir string) (line stateLine, ok bool) {
	if isSpare(dir) {
		os.RemoveAll(dir)
		return line, false
	}
	line, err := readState(dir)
	if err == nil {
		return line, true
	}
	if _, forgotten := j.tombstones.byID(filepath.Base(dir)); forgotten {
		os.RemoveAll(dir)
		return line, false
	}
	if line.ExecutionID == "" {
		j.setAside(dir, err)
		return line, false
	}
	return line, j.setAside(filepath.Join(dir, stateFileName), err)
}

// setAside renames something damaged and logs that.
func (j *Journal) setAside(path string, why error) bool {
	kept, err := keep.Aside(path)
	j.log.Warn("a damaged file of the execution log is kept under another name", "err", errors.Join(why, err), "path", path, "kept", kept)
	return err == nil
}

// recoverRecord returns an execution as an earlier executor left it, and ends it if it
// had not finished.
func (j *Journal) recoverRecord(dir string, line stateLine) *Record {
	limit := j.cfg.Limits.LogBytes
	r := newRecord(dir, line, openEventLog(dir, limit, line.NextOffset, j.reserve), openBlobs(dir, limit))
	r.reserve, r.finished = j.reserve, j.cfg.Finished
	if line.Status.Finished() {
		r.file.ended = true
		if r.checkFile() { // it was damaged
			j.reserve.add(r, nil)
		}
		return r
	}
	if err := r.endAfterKill(); err != nil {
		j.log.Warn("closing an unfinished execution", "execution_id", r.ID, "err", err)
	}
	return r
}

// endAfterKill ends what a killed executor left unfinished. Its events remain readable.
func (r *Record) endAfterKill() error {
	err := r.events.repair()
	cut, torn := cutTornLine(r.file.path, stateBegins)
	if !errors.Is(torn, fs.ErrNotExist) {
		err = errors.Join(err, torn)
	}
	status, reason := contract.StatusLost, "the executor was killed while this was running; the output up to then is kept, the variables are gone"
	switch {
	case cut:
		reason = "the end of its record is missing: it may have run, and may have finished; the variables are gone"
	case r.state.Status == contract.StatusQueued && r.events.end() == 0:
		status, reason = contract.StatusCancelled, "the executor was killed before this started; it never ran"
	}
	r.Finish(status, reason, 0)
	return err
}

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

// Trim deletes what exceeds the limits: first the output of the oldest finished
// executions, then the executions themselves, of which tombstones remain. The relay's
// own executions (Unstored: rounds of loops, saves of variables) may be thousands a
// minute, so that they displace only each other. What a job did and no relay has fetched
// is deleted last.
func (j *Journal) Trim() {
	for _, r := range j.trim() {
		os.RemoveAll(r.dir) // without the lock: a submit need not wait for it
	}
}

// trim returns the executions whose folders are to be deleted.
func (j *Journal) trim() []*Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trimOutputLocked()
	return append(j.forgetLocked(false), j.forgetLocked(true)...)
}

func (j *Journal) trimOutputLocked() {
	limit := j.cfg.Limits.StateSize
	atMost := j.output.Load()
	if atMost <= limit {
		return
	}
	var total, own int64
	for _, r := range j.order {
		size := r.bytes()
		total += size
		if r.Unstored {
			own += size
		}
	}
	j.output.Add(total - atMost) // what is written meanwhile is counted twice: still at most
	fetched := func(r *Record) bool { return !r.awaited() }
	if total > limit && own > limit/2 {
		total -= j.dropOutputLocked(min(total-limit, own-limit/2), func(r *Record) bool { return r.Unstored && fetched(r) })
	}
	for _, allowed := range []func(*Record) bool{fetched, func(*Record) bool { return true }} {
		if total > limit {
			total -= j.dropOutputLocked(total-limit, allowed)
		}
	}
}

// dropOutputLocked deletes at least so many bytes of output, the oldest finished
// executions first.
func (j *Journal) dropOutputLocked(bytes int64, allowed func(*Record) bool) (freed int64) {
	for _, r := range j.order {
		if freed >= bytes {
			break
		}
		if !allowed(r) || !r.Status().Finished() {
			continue
		}
		if r.awaited() {
			j.log.Warn("output of a job was deleted before a relay had read it", "job_id", r.state.Job.JobID, "execution_id", r.ID, "bytes", r.bytes())
		}
		freed += r.dropOutput()
	}
	j.output.Add(-freed)
	return freed
}

// forgetLocked replaces finished executions beyond Limits.Kept by tombstones, and beyond
// Limits.Awaited more also those of jobs whose output no relay has fetched.
func (j *Journal) forgetLocked(unstored bool) (forgotten []*Record) {
	excess := j.kept[unstored] - j.cfg.Limits.Kept
	if excess <= 0 {
		return nil
	}
	forgotten = j.forgetOldestLocked(unstored, excess, func(r *Record) bool { return !r.awaited() })
	if excess -= len(forgotten) + j.cfg.Limits.Awaited; excess > 0 {
		forgotten = append(forgotten, j.forgetOldestLocked(unstored, excess, func(*Record) bool { return true })...)
	}
	return forgotten
}

// forgetOldestLocked forgets up to excess executions. Without a tombstone an execution is kept:
// its request_id would run the code again.
func (j *Journal) forgetOldestLocked(unstored bool, excess int, allowed func(*Record) bool) (forgotten []*Record) {
	j.order = slices.DeleteFunc(j.order, func(r *Record) bool {
		if excess <= 0 || r.Unstored != unstored || !allowed(r) || !r.Status().Finished() {
			return false
		}
		if err := j.tombstones.add(tombstoneOf(r)); err != nil {
			j.log.Error("writing a tombstone; the execution is kept until that succeeds", "execution_id", r.ID, "err", err)
			excess = 0
			return false
		}
		excess--
		j.removeLocked(r)
		forgotten = append(forgotten, r)
		return true
	})
	return forgotten
}

// removeLocked deletes what is kept of an execution, except in j.order and on disk.
func (j *Journal) removeLocked(r *Record) {
	j.kept[r.Unstored]--
	delete(j.byID, r.ID)
	delete(j.byRequest, r.requestID)
	r.events.retire()
	j.reserve.remove(r)
}
