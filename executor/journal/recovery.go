package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"

	"colabrelay/shared/contract"
)

// mayHaveGrown is how many logs may have grown since their last state was saved: those of the last
// runs, which threads can print to. An executor keeps about 20 logs open.
const mayHaveGrown = 64

// recover reads the states of all executions. The folders of those that have ended are read later,
// when somebody asks for their output.
func (j *Journal) recover() error {
	folders, err := j.folders()
	if err != nil {
		return err
	}
	damaged := false
	if j.states, damaged, err = openStates(j.cfg.Dir, j.cfg.Limits.Tombstones, len(folders) > 0, j.log); err != nil {
		return err
	}
	var all, unfinished, open []*Record
	ids := slices.DeleteFunc(j.states.idsLocked(), isJob) // no other goroutine has it yet
	for i, id := range ids {
		var line stateLine
		if err := j.states.read(j.states.live[id][0], &line); err != nil {
			j.log.Warn("reading the state of an execution", "execution_id", id, "err", err)
			continue
		}
		r := j.recordOf(line)
		all = append(all, r)
		switch {
		case !line.Status.Finished():
			unfinished = append(unfinished, r)
		case i >= len(ids)-mayHaveGrown:
			open = append(open, r)
		}
	}
	// Not by their last lines, nor by id, which is random.
	slices.SortFunc(all, func(a, b *Record) int { return a.state.CreatedAt.Compare(b.state.CreatedAt) })
	for _, r := range unfinished {
		r.endAfterKill(damaged)
	}
	for _, r := range open {
		r.measure()
		r.CloseLog()
	}
	for _, r := range all {
		j.addLocked(r)
	}
	j.adopt(folders)
	return nil
}

// folders returns the names of the folders of executions.
func (j *Journal) folders() (names []string, err error) {
	entries, err := os.ReadDir(j.cfg.Dir)
	for _, e := range entries {
		if e.IsDir() && uuid.Validate(e.Name()) == nil { // else set aside, or of a user
			names = append(names, e.Name())
		}
	}
	return names, err
}

// adopt deletes the folders of forgotten executions, whose deletion a kill has cut off. Those of
// which no line tells stay: a damaged states.log may have had one.
func (j *Journal) adopt(folders []string) {
	unknown := 0
	for _, id := range folders {
		if j.byID[id] != nil {
			continue
		}
		if _, past := j.states.pastID(id); past {
			os.RemoveAll(filepath.Join(j.cfg.Dir, id))
		} else {
			unknown++
		}
	}
	if unknown > 0 {
		j.log.Warn("the states of executions lack some that have folders; the folders are left as they are", "path", j.states.path, "count", unknown)
	}
}

// measure finds out what is in the folder.
func (r *Record) measure() {
	if err := r.events.load(); err != nil {
		r.journal.log.Warn("reading the log of an execution", "execution_id", r.ID, "err", err)
	}
	r.blobs.measure()
}

// endAfterKill ends what a killed executor left unfinished. Its events remain readable. With doubt, a
// line is missing that may have said that it began.
func (r *Record) endAfterKill(doubt bool) {
	r.measure()
	status, reason := contract.StatusLost, "the executor was killed while this was running; the output up to then is kept, the variables are gone"
	switch queued := r.state.Status == contract.StatusQueued && r.events.end() == 0; {
	case queued && doubt:
		reason = "the end of its record is missing: it may have run, and may have finished; the variables are gone"
	case queued:
		status, reason = contract.StatusCancelled, "the executor was killed before this started; it never ran"
	}
	r.Finish(status, reason, 0)
}

// Restore writes again what the state directory held before it was deleted: the states of all
// executions. Output is lost, except that of logs that are still open. It returns how many states
// were missing. Without an error, all are on disk.
func (j *Journal) Restore() (missing int, err error) {
	restored, err := j.states.restore()
	if restored {
		j.mu.Lock()
		missing = len(j.order)
		j.mu.Unlock()
		j.log.Warn("the states of executions were deleted; they are saved again", "count", missing, "err", err)
	}
	j.Flush()
	if err == nil && j.NeedsFlush() {
		err = errors.New("some states of executions can't be written yet")
	}
	return missing, err
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
	j.states.compactIfDue()
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
		line := r.tombstone()
		if err := j.states.append(line.head(), line); err != nil {
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
	j.late.remove(r)
}
