package execution

import (
	"encoding/json"
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

// waiter is what waits for the kernel or has it: a source, or an execution that was submitted by itself.
type waiter struct {
	Source
	caller string
	single *journal.Record // nil for the source of several executions
	later  bool            // the time of its turn has not come
	before int             // how many of its line come first
	served int             // the last turn of its line
}

// single is the source of an execution that was submitted by itself. Its log is open since then.
type single struct {
	*journal.Record
	code string
}

// Begin lets go of the code.
func (s *single) Begin(string) Turn {
	turn := Turn{Record: s.Record, Code: s.code}
	s.code = ""
	return turn
}

// Lost ends an execution that never gets the kernel.
func (s *single) Lost(reason string) {
	s.Finish(contract.StatusCancelled, reason, 0)
	s.CloseLog()
}

func (s *single) Ended(Outcome) Next { return Next{} }
func (s *single) Changed()           {}
func (s *single) Size() int          { return len(s.code) }

// againKey is the name of the only user expression.
const againKey = "again"

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
	q.addLocked(&waiter{Source: src, caller: caller})
	return nil
}

// Leave takes a source out of the queue, unless it has the kernel.
func (q *Queue) Leave(src Source) { q.remove(func(w *waiter) bool { return w.Source == src }) }

// Room returns an error if the caller's sources must not grow by so many bytes.
func (q *Queue) Room(caller string, more int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fullLocked(caller, more, false)
}

// Behind describes the execution that has the kernel; nil if none has it.
func (q *Queue) Behind() *contract.Behind {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.behindLocked()
}

// goOn has w wait for its next turn, if it wants one.
func (q *Queue) goOn(w *waiter, next Next) {
	if !next.Wanted {
		return
	}
	q.mu.Lock()
	reason := q.death
	lost := q.life == ""
	if !lost {
		if w.later = next.After > 0; w.later {
			time.AfterFunc(next.After, func() { q.due(w) })
		}
		q.addLocked(w)
	}
	q.mu.Unlock()
	if lost {
		w.Lost(reason)
	}
}

// due gives w its turn, because the time of it has come.
func (q *Queue) due(w *waiter) {
	q.mu.Lock()
	w.later = false
	q.orderLocked()
	q.mu.Unlock()
	q.signal()
}

// chosen says which execution the source that has its turn runs.
func (q *Queue) chosen(record *journal.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running = record
	q.orderLocked()
}

// tell tells the source of a run how it ended.
func (r *runner) tell(c *run) {
	o := Outcome{Execution: c.record.Snapshot(), InterruptAsked: c.cause == causeAsked}
	if c.reply != nil {
		o.Again = againOf(c.reply.UserExpressions)
	}
	r.q.goOn(c.source, c.source.Ended(o))
}
