package execution

import (
	"fmt"
	"slices"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// submission is an execution that waits for the kernel.
type submission struct {
	*journal.Record // nil for the turn of a source, which makes it when the turn has come
	code            string
	prelude, again  string // expressions to evaluate before and after the code
	caller          string
	member          *member // whose turn it is; nil for an execution that was submitted by itself
	round           int     // in which of the rounds of all callers it runs
}

// ofSource reports whether the turn is that of a source, such as a job.
func (s *submission) ofSource() bool { return s.member != nil }

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

// maxQueuedCode bounds the code of all that waits, executions and sources, in bytes, because it is in memory
// until they start. Callers that have nothing waiting may exceed it, up to twice as much: see
// fullLocked.
const maxQueuedCode = 32 << 20

// fullLocked returns why there is no place for an execution of this caller, whose code has
// size bytes; nil if there is one. All callers share Limits.Queue places and maxQueuedCode
// bytes. As much of both again is for callers that have nothing waiting, one place each, so
// that a caller with many executions keeps no other out. The turn of a source needs no place,
// but its code needs room.
func (q *Queue) fullLocked(caller string, size int) error {
	places, waiting := q.cfg.Limits.Queue, 0
	for _, s := range q.pending {
		if s.member == nil {
			waiting++
		}
	}
	if !q.waitsLocked(caller) {
		places *= 2
	}
	if waiting >= places {
		return ErrQueueFull
	}
	return q.roomLocked(caller, size)
}

// waitsLocked reports whether an execution of the caller waits.
func (q *Queue) waitsLocked(caller string) bool {
	return slices.ContainsFunc(q.pending, func(s *submission) bool { return s.member == nil && s.caller == caller })
}

// roomLocked returns why there is no room for size bytes of code more.
func (q *Queue) roomLocked(caller string, size int) error {
	room, waiting := maxQueuedCode, 0
	if !q.waitsLocked(caller) && !slices.ContainsFunc(q.members, func(m *member) bool { return m.caller == caller }) {
		room *= 2
	}
	for _, s := range q.pending {
		waiting += len(s.code)
	}
	for _, m := range q.members {
		waiting += m.Size()
	}
	if waiting+size > room {
		return fmt.Errorf("%w: %.1f MiB are waiting, this code has %.1f MiB, and the limit is %d MiB",
			ErrQueuedCode, float64(waiting)/(1<<20), float64(size)/(1<<20), room>>20)
	}
	return nil
}

// turn is one that a caller had.
type turn struct {
	caller   string
	ofSource bool
	round    int
}

// maxTurns is how many of the last turns are remembered: more than one round of callers has.
const maxTurns = 256

// enqueueLocked gives a submission its turn. In each round every caller runs one execution,
// in the order of submission; then every caller has a turn of one of its sources. A caller's
// next one of either kind is in the next round. So all sources of a caller together have one
// turn a round, and other runs go between their executions, the same caller's too.
func (q *Queue) enqueueLocked(s *submission) {
	s.round = max(q.firstRoundLocked(s), 1+q.lastRoundLocked(func(p *submission) bool {
		return p.caller == s.caller && p.ofSource() == s.ofSource()
	}))
	at := len(q.pending)
	for at > 0 && s.before(q.pending[at-1]) {
		at--
	}
	q.pending = slices.Insert(q.pending, at, s)
}

// giveUpTurnLocked takes a submission out of the queue. The caller's later ones of its kind each
// get the turn of the one before them.
func (q *Queue) giveUpTurnLocked(i int) {
	gone := q.pending[i]
	q.pending = slices.Delete(q.pending, i, i+1)
	free := gone.round
	for _, s := range q.pending[i:] {
		if s.caller == gone.caller && s.ofSource() == gone.ofSource() {
			s.round, free = free, s.round
		}
	}
	slices.SortStableFunc(q.pending[i:], func(a, b *submission) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	})
}

// firstRoundLocked is the round that has begun, if the caller had its last turn in an earlier
// one: a caller that waits for each answer before it submits again is always late. Otherwise it is
// the next round, also for a caller that had no turn lately: whoever invents callers must not
// prolong the round.
func (q *Queue) firstRoundLocked(s *submission) int {
	known := false
	for _, t := range q.turns {
		if t.caller != s.caller {
			continue
		}
		known = true
		if t.ofSource == s.ofSource() && t.round == q.round {
			return q.round + 1
		}
	}
	if known {
		return q.round
	}
	return q.round + 1
}

// beginTurnLocked records that a submission has its turn.
func (q *Queue) beginTurnLocked(s *submission) {
	q.round = s.round
	if len(q.turns) == maxTurns {
		q.turns = slices.Delete(q.turns, 0, 1)
	}
	q.turns = append(q.turns, turn{s.caller, s.ofSource(), s.round})
}

// before reports whether s, which was submitted later than p, runs before it.
func (s *submission) before(p *submission) bool {
	if s.round == p.round {
		return !s.ofSource() && p.ofSource()
	}
	return s.round < p.round
}
