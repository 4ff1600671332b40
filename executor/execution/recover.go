package execution

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"colabrelay/shared/contract"
)

// recoverAll reads every execution in the log's folder, oldest first. A folder
// that can't be read is left alone and named in the log: it was torn while being
// made, before its submit was answered.
func recoverAll(cfg Config, known *past) ([]*entry, *reserve, error) {
	r, reserved := openReserve(cfg.Dir, cfg.Log)
	folders, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	var all []*entry
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		dir := filepath.Join(cfg.Dir, folder.Name())
		if unused(dir) {
			os.RemoveAll(dir)
			continue
		}
		line, err := readState(dir)
		if _, forgotten := known.byID(folder.Name()); err != nil && forgotten {
			os.RemoveAll(dir) // a kill interrupted that
			continue
		}
		if err != nil {
			cfg.Log.Warn("an execution's folder can't be read", "component", "execution", "err", err)
			continue
		}
		if _, ok := reserved[line.ExecutionID]; ok && !line.Status.Finished() {
			continue // what is known last is in the reserve
		}
		delete(reserved, line.ExecutionID)
		all = append(all, recovered(cfg, dir, line, r))
	}
	for id, line := range reserved {
		if _, forgotten := known.byID(id); forgotten {
			continue
		}
		e := recovered(cfg, filepath.Join(cfg.Dir, id), line, r)
		if line.Status.Finished() { // its folder does not say so yet
			e.states.unsaved = true
			r.later(e, ErrDiskFull)
		}
		all = append(all, e)
	}
	// Not by id: that of a folder made ahead is older than its submit.
	slices.SortFunc(all, func(a, b *entry) int { return a.now.CreatedAt.Compare(b.now.CreatedAt) })
	return all, r, nil
}

// unused reports a folder that was made ahead and never taken.
func unused(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, stateFile))
	return err == nil && info.Size() == 0
}

// recovered is an execution as an earlier executor left it, ended if it had not.
func recovered(cfg Config, dir string, line stateLine, r *reserve) *entry {
	e := newEntry(dir, line, openLog(dir, cfg.Limits.LogBytes, line.NextOffset, r), openBlobs(dir, cfg.Limits.LogBytes))
	e.reserve = r
	if line.Status.Finished() {
		e.states.ended = true
		return e
	}
	if err := e.abandon(); err != nil {
		cfg.Log.Warn("closing an unfinished execution", "component", "execution", "execution_id", e.id, "err", err)
	}
	return e
}

// abandon ends what an executor that was killed left unfinished. Its events up
// to the kill stay readable.
func (e *entry) abandon() error {
	err := e.log.repair()
	if torn := cutTornLine(e.states.path); !errors.Is(torn, fs.ErrNotExist) {
		err = errors.Join(err, torn)
	}
	status, reason := contract.StatusLost, "the executor was killed while this ran; its output up to then is kept, its variables are gone"
	if e.now.Status == contract.StatusQueued && e.log.end() == 0 {
		status, reason = contract.StatusCancelled, "the executor was killed before this started; it never ran"
	}
	e.finish(status, reason, 0)
	return err
}
