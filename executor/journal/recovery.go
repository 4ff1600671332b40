package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
