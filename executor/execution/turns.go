package execution

import "slices"

// last is the round of the caller's last waiting execution, 0 when none waits. The lock
// is held.
func (q *Queue) last(caller string) (round int) {
	for _, e := range q.pending {
		if e.caller == caller {
			round = e.round
		}
	}
	return round
}

// full reports whether an execution of this caller finds no place. Limits.Queue places
// are for all; as many again are for callers of which nothing waits, one each, so that
// one with many keeps no other out. The lock is held.
func (q *Queue) full(caller string) bool {
	waiting, most := len(q.pending), q.cfg.Limits.Queue
	return waiting >= most && (q.last(caller) > 0 || waiting >= 2*most)
}

// enqueue gives e its turn. Callers run one execution each in a round, in the order in
// which they came; those of one caller keep their order. Who submits another while one
// of its own waits goes to the next round, behind all others of this one. The lock is held.
func (q *Queue) enqueue(e *entry, caller string) {
	e.caller = caller
	e.round = max(q.round, q.last(caller)) + 1
	at := len(q.pending)
	for at > 0 && q.pending[at-1].round > e.round {
		at--
	}
	q.pending = slices.Insert(q.pending, at, e)
}
