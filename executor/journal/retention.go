package journal

import (
	"os"
	"slices"
)

// Trim deletes what exceeds the limits: first the output of the oldest finished
// executions, then the executions themselves, of which tombstones remain. The relay's
// own executions (Unstored: batches of loops, saves of variables) may be thousands a
// minute, so that they displace only each other.
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
	if total > limit && own > limit/2 {
		total -= j.dropOutputLocked(min(total-limit, own-limit/2), func(r *Record) bool { return r.Unstored })
	}
	if total > limit {
		j.dropOutputLocked(total-limit, func(*Record) bool { return true })
	}
}

// dropOutputLocked deletes at least so many bytes of output, the oldest finished
// executions first.
func (j *Journal) dropOutputLocked(bytes int64, allowed func(*Record) bool) (freed int64) {
	for _, r := range j.order {
		if freed >= bytes {
			break
		}
		if allowed(r) && r.Snapshot().Status.Finished() {
			freed += r.dropOutput()
		}
	}
	j.output.Add(-freed)
	return freed
}

// forgetLocked replaces finished executions beyond Limits.Kept by tombstones. Without a
// tombstone an execution is kept: its request_id would run the code again.
func (j *Journal) forgetLocked(unstored bool) (forgotten []*Record) {
	excess := j.kept[unstored] - j.cfg.Limits.Kept
	if excess <= 0 {
		return nil
	}
	j.order = slices.DeleteFunc(j.order, func(r *Record) bool {
		if excess <= 0 || r.Unstored != unstored || !r.Snapshot().Status.Finished() {
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
