package journal

import (
	"os"
	"slices"
)

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
