package execution

import (
	"slices"

	"colabrelay/executor/journal"
)

// submission is an execution that waits for the kernel.
type submission struct {
	*journal.Record
	code   string
	caller string
	round  int // in which of the rounds of all callers it runs
}

// lastRoundLocked is the round of the caller's last waiting execution, 0 if none waits.
func (q *Queue) lastRoundLocked(caller string) (round int) {
	for _, s := range q.pending {
		if s.caller == caller {
			round = s.round
		}
	}
	return round
}

// fullLocked reports whether there is no place for an execution of this caller. All
// callers share Limits.Queue places. As many again are for callers that have nothing
// waiting, one place each, so that a caller with many executions keeps no other out.
func (q *Queue) fullLocked(caller string) bool {
	waiting, limit := len(q.pending), q.cfg.Limits.Queue
	return waiting >= limit && (q.lastRoundLocked(caller) > 0 || waiting >= 2*limit)
}

// enqueueLocked gives a submission its turn. In each round every caller runs one
// execution, in the order of submission. A caller whose execution still waits gets its
// next one in the next round, after all others of this one.
func (q *Queue) enqueueLocked(s *submission) {
	s.round = max(q.round, q.lastRoundLocked(s.caller)) + 1
	at := len(q.pending)
	for at > 0 && q.pending[at-1].round > s.round {
		at--
	}
	q.pending = slices.Insert(q.pending, at, s)
}
