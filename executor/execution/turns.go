package execution

import (
	"fmt"
	"slices"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// submission is an execution that waits for the kernel.
type submission struct {
	*journal.Record
	code    string
	caller  string
	follows *journal.Record // what AfterRequestID names; nil if that is empty or unknown
	round   int             // in which of the rounds of all callers it runs
}

// chained reports whether the submission follows another one, as the cells of a notebook do.
func (s *submission) chained() bool { return s.AfterRequestID != "" }

// cancel ends an execution that never gets the kernel. Its log is open since it was submitted.
func (s *submission) cancel(reason string) {
	s.Finish(contract.StatusCancelled, reason, 0)
	s.CloseLog()
}

// lastRoundLocked is the highest round of the waiting executions that match reports, 0 if
// there are none.
func (q *Queue) lastRoundLocked(match func(*submission) bool) (round int) {
	for _, s := range q.pending {
		if match(s) {
			round = s.round
		}
	}
	return round
}

// maxQueuedCode bounds the code of all waiting executions in bytes, because it is in memory
// until they start. Callers that have nothing waiting may exceed it, up to twice as much: see
// fullLocked.
const maxQueuedCode = 32 << 20

// fullLocked returns why there is no place for an execution of this caller, whose code has
// size bytes; nil if there is one. All callers share Limits.Queue places and maxQueuedCode
// bytes. As much of both again is for callers that have nothing waiting, one place each, so
// that a caller with many executions keeps no other out. An execution that follows another
// one needs a place like any other.
func (q *Queue) fullLocked(caller string, size int) error {
	places, room := q.cfg.Limits.Queue, maxQueuedCode
	if !slices.ContainsFunc(q.pending, func(s *submission) bool { return s.caller == caller }) {
		places, room = 2*places, 2*room
	}
	if len(q.pending) >= places {
		return ErrQueueFull
	}
	waiting := 0
	for _, s := range q.pending {
		waiting += len(s.code)
	}
	if waiting+size > room {
		return fmt.Errorf("%w: %.1f MiB are waiting, this code has %.1f MiB, and the limit is %d MiB",
			ErrQueuedCode, float64(waiting)/(1<<20), float64(size)/(1<<20), room>>20)
	}
	return nil
}

// enqueueLocked gives a submission its turn. In each round every caller runs one execution,
// in the order of submission; then every caller runs one that follows another. A caller's
// next one of either kind is in the next round. So all chains of a caller together have one
// turn a round, and other runs go between their executions, the same caller's too.
func (q *Queue) enqueueLocked(s *submission) {
	s.round = 1 + max(q.round, q.lastRoundLocked(func(p *submission) bool {
		return p.caller == s.caller && p.chained() == s.chained() || p.Record == s.follows
	}))
	at := len(q.pending)
	for at > 0 && s.before(q.pending[at-1]) {
		at--
	}
	q.pending = slices.Insert(q.pending, at, s)
}

// before reports whether s, which was submitted later than p, runs before it.
func (s *submission) before(p *submission) bool {
	if s.round == p.round {
		return !s.chained() && p.chained()
	}
	return s.round < p.round
}
