package execution

import (
	"os"
	"slices"
)

// retain drops what goes beyond the limits: the output of the oldest finished
// executions first, then the executions themselves, of which a record of past ones is
// kept. The relay's own executions (Submit.Unstored: batches of loops, saves of
// variables), which may be thousands a minute, push out only each other. The lock is
// held.
func (q *Queue) retain() {
	var total, own int64
	for _, e := range q.order {
		size := e.bytes()
		total += size
		if e.unstored {
			own += size
		}
	}
	limit := q.cfg.Limits.StateSize
	if total > limit && own > limit/2 {
		total -= q.dropOutput(min(total-limit, own-limit/2), func(e *entry) bool { return e.unstored })
	}
	if total > limit {
		q.dropOutput(total-limit, func(*entry) bool { return true })
	}
	for _, unstored := range []bool{false, true} {
		q.forget(unstored)
	}
}

// dropOutput frees so many bytes of the oldest finished executions that may go.
func (q *Queue) dropOutput(bytes int64, may func(*entry) bool) (freed int64) {
	for _, e := range q.order {
		if freed >= bytes {
			break
		}
		if may(e) && e.snapshot().Status.Finished() {
			freed += e.drop()
		}
	}
	return freed
}

// forget leaves only a record of what goes beyond Limits.Kept. Where it can't be
// written, they stay: a forgotten request_id would run its code again.
func (q *Queue) forget(unstored bool) {
	over := -q.cfg.Limits.Kept
	for _, e := range q.order {
		if e.unstored == unstored {
			over++
		}
	}
	for i := 0; i < len(q.order) && over > 0; {
		e := q.order[i]
		if e.unstored != unstored || !e.snapshot().Status.Finished() {
			i++
			continue
		}
		if err := q.past.add(pastOf(e)); err != nil {
			q.cfg.Log.Error("recording a past execution; it is kept until that works", "component", "execution", "execution_id", e.id, "err", err)
			return
		}
		q.order = slices.Delete(q.order, i, i+1)
		over--
		delete(q.byID, e.id)
		delete(q.byRequest, e.requestID)
		e.log.retire()
		q.reserve.never(e)
		os.RemoveAll(e.dir)
	}
}

func (e *entry) bytes() int64 { return e.log.size() + e.blobs.size() }

// drop deletes the output and keeps the state, so that a reader still learns how
// it ended and a retried submit still runs nothing.
func (e *entry) drop() (freed int64) {
	freed = e.bytes()
	e.log.drop()
	e.blobs.drop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broadcast()
	return freed
}
