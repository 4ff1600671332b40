package execution

import (
	"encoding/json"
	"slices"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// Source has one execution after the other for the kernel, such as the steps of a job. It is
// in the queue with one turn at a time, so that other runs go between its executions. All
// methods but Size are called without the queue's lock, so that they may call the queue.
type Source interface {
	// Begin is called when the source has its turn on the kernel with this id.
	Begin(kernelID string) Turn
	// Ended says how the execution of the last turn ended.
	Ended(o Outcome) Next
	// Changed says that the running execution began or ended to wait for input.
	Changed()
	// Lost says that the kernel or the executor ended: the source gets no more turns.
	Lost(reason string)
	// Size is how many bytes the source keeps of what has not begun. It must not block.
	Size() int
}

// Turn is what a source does with its turn.
type Turn struct {
	Record *journal.Record // of the next execution, on disk; nil if there is none now
	Code   string
	Before string // an expression that the kernel evaluates first, silently; empty for none
	Again  string // an expression to evaluate after the code; empty for none
	Next          // without a Record
}

// Next is the turn that a source wants next. The zero value means none: the source leaves the
// queue.
type Next struct {
	Wanted bool
	After  time.Duration // not before this time has passed
}

// Outcome is how an execution of a source ended.
type Outcome struct {
	contract.Execution        // without events
	Again              string // the text of the value of Turn.Again; empty if it has none
	InterruptAsked     bool   // whatever the code made of the interrupt
}

// member is a source in the queue.
type member struct {
	Source
	caller string
	due    time.Time // of its next turn, while it waits for that time; else zero
}

// againKey is the name of the only user expression.
const againKey = "again"

// expressions are the user_expressions of the execution.
func (s *submission) expressions() map[string]string {
	if s.again == "" {
		return nil
	}
	return map[string]string{againKey: s.again}
}

// againOf is the text of the expression's value. An expression that raised has none.
func againOf(expressions map[string]json.RawMessage) string {
	var value struct {
		Status string            `json:"status"`
		Data   map[string]string `json:"data"`
	}
	if json.Unmarshal(expressions[againKey], &value) != nil || value.Status != "ok" {
		return ""
	}
	return value.Data["text/plain"]
}

// Join gives a source its first turn. It gets no more turns when Begin or Ended wants none,
// after Lost, or after Leave.
func (q *Queue) Join(caller string, src Source) error {
	defer q.signal()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refuseLocked(caller, src.Size(), false); err != nil {
		return err
	}
	m := &member{Source: src, caller: caller}
	q.members = append(q.members, m)
	q.enqueueLocked(&submission{member: m, caller: caller})
	q.updateLocked()
	return nil
}

// Leave takes a source out of the queue, unless it has the kernel, and reports whether it did.
func (q *Queue) Leave(src Source) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.members, func(m *member) bool { return m.Source == src })
	if i < 0 || q.members[i] == q.current {
		return false
	}
	q.removeLocked(q.members[i])
	q.lendLocked()
	q.updateLocked()
	return true
}

// removeLocked forgets a member and its turn.
func (q *Queue) removeLocked(m *member) {
	q.members = slices.DeleteFunc(q.members, func(other *member) bool { return other == m })
	if i := slices.IndexFunc(q.pending, func(s *submission) bool { return s.member == m }); i >= 0 {
		q.giveUpTurnLocked(i)
	}
}

// Room returns an error if the caller's sources must not grow by so many bytes.
func (q *Queue) Room(caller string, more int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.roomLocked(caller, more)
}

// LowMemory returns an ErrLowMemory while too little memory is free for a run.
func (q *Queue) LowMemory() error { return q.lowMemory() }

// Behind describes the execution that has the kernel; nil if none has it.
func (q *Queue) Behind() *contract.Behind {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.behindLocked()
}

// goOn gives a member its next turn, or takes it out of the queue.
func (q *Queue) goOn(m *member, next Next) {
	q.mu.Lock()
	lost := ""
	switch {
	case !slices.Contains(q.members, m):
	case !next.Wanted:
		q.removeLocked(m)
	case q.life == "":
		q.removeLocked(m)
		lost = q.death
	case next.After > 0:
		m.due = time.Now().Add(next.After)
	default:
		q.enqueueLocked(&submission{member: m, caller: m.caller})
	}
	q.mu.Unlock()
	if lost != "" {
		m.Lost(lost)
	}
}

// dueLocked gives their turns to the members whose time has come.
func (q *Queue) dueLocked(now time.Time) {
	for _, m := range q.members {
		if !m.due.IsZero() && !now.Before(m.due) {
			m.due = time.Time{}
			q.enqueueLocked(&submission{member: m, caller: m.caller})
		}
	}
}

// eachDue calls add with the time of each member's turn that has not come.
func (q *Queue) eachDue(add func(time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.members {
		if !m.due.IsZero() {
			add(m.due)
		}
	}
}

// loseLocked returns the members that have no running execution, after it took them out of
// the queue. The outcome of the running one tells its source.
func (q *Queue) loseLocked() (lost []*member) {
	q.members = slices.DeleteFunc(q.members, func(m *member) bool {
		if m == q.current {
			return false
		}
		lost = append(lost, m)
		return true
	})
	return lost
}

// choose asks the member that has its turn for its execution, and reports whether there is one.
func (r *runner) choose(s *submission) bool {
	turn := s.member.Begin(r.kernel.ID)
	if turn.Record != nil {
		s.Record, s.code, s.prelude, s.again = turn.Record, turn.Code, turn.Before, turn.Again
		r.q.chosen(s)
		return true
	}
	r.q.goOn(s.member, turn.Next)
	r.q.yield()
	r.q.signal()
	return false
}

// chosen gives the kernel to the execution of a member.
func (q *Queue) chosen(s *submission) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.choosing, q.running, q.current = false, s.Record, s.member
	q.updateLocked()
}

// tell tells the source of a run how it ended.
func (r *runner) tell(c *run) {
	if c.member == nil {
		return
	}
	o := Outcome{Execution: c.record.Snapshot(), InterruptAsked: c.cause == causeAsked}
	if c.reply != nil {
		o.Again = againOf(c.reply.UserExpressions)
	}
	r.q.goOn(c.member, c.member.Ended(o))
}
