// Package execution runs code on the kernel, one execution at a time, and hands all
// that each one produces to the journal, where anyone who has its id can read it.
//
// It speaks Jupyter through executor/jupyter, leaves the process to executor/kernel
// and the disk to executor/journal, and knows nothing of HTTP. Start reading at
// Queue.Submit, then Queue.Run and runner.serve.
package execution

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
)

// Errors of the queue.
var (
	ErrQueueFull    = errors.New("too many executions are waiting already")
	ErrQueuedCode   = errors.New("the waiting executions hold too much code")
	ErrLowMemory    = errors.New("too little memory is free")
	ErrKernelBusy   = errors.New("a run is using the kernel")
	ErrNotWaiting   = errors.New("the execution is not waiting for input")
	ErrOtherPrompt  = errors.New("the execution waits at another prompt than the one that this text answers")
	ErrPassword     = errors.New("the execution asks for a password, which only the person may type")
	ErrFinished     = errors.New("the execution has finished")
	ErrShuttingDown = errors.New("the executor is shutting down")
)

// Limits bound what the queue accepts. The zero value of a field means its default.
type Limits struct {
	Queue     int    // executions that wait, see Queue.fullLocked; 64
	MinMemory uint64 // bytes that must be free to accept a run; 0.5 GiB
}

// DefaultLimits are the contract's.
var DefaultLimits = Limits{Queue: 64, MinMemory: 512 << 20}

// Config says what the queue runs on and where it records.
type Config struct {
	Kernel  *kernel.Supervisor
	Journal *journal.Journal
	// Memory returns the used and the available memory of the machine, in bytes.
	Memory func() (used, available uint64, err error)
	Limits Limits
	Log    *slog.Logger
}

// Queue accepts executions and runs them, in order, on the kernel.
type Queue struct {
	cfg      Config
	log      *slog.Logger
	journal  *journal.Journal
	memory   *memoryGauge
	commands chan command
	wake     chan struct{} // buffered: something to run, or the kernel is free again
	stopped  chan struct{} // closed when Run ends
	ended    atomic.Bool   // executions have ended that the runner has not tidied up after

	mu      sync.Mutex
	pending []*submission   // in the order in which they run
	round   int             // of the one that started last
	turns   []turn          // the last ones, the newest last; see maxTurns
	life    string          // id of the kernel that they run on; empty while there is none
	running *journal.Record // has the kernel; it may have finished without yielding it
	current *member         // whose execution running is; nil if that was submitted by itself
	members []*member       // sources, the oldest first
	// choosing: a source that has its turn is asked for its execution.
	choosing bool
	death    string // why there is no kernel, if there was one
	prompt   prompt // the newest of running
	guests   guests
	closing  bool
}

// New makes a queue; Run runs it.
func New(cfg Config) *Queue {
	cfg.Limits.Queue = cmp.Or(cfg.Limits.Queue, DefaultLimits.Queue)
	cfg.Limits.MinMemory = cmp.Or(cfg.Limits.MinMemory, DefaultLimits.MinMemory)
	return &Queue{
		cfg:      cfg,
		log:      cfg.Log.With("component", "execution"),
		journal:  cfg.Journal,
		memory:   &memoryGauge{read: cfg.Memory},
		commands: make(chan command),
		wake:     make(chan struct{}, 1),
		stopped:  make(chan struct{}),
	}
}

// Submit accepts s and returns the id of its execution. A RequestID that was used
// before returns the same id and runs nothing. Callers take turns. s must be within
// the contract's bounds.
func (q *Queue) Submit(caller string, s contract.Submit) (id string, err error) {
	defer q.signal() // also after an error: the runner flushes the journal
	q.mu.Lock()
	defer q.mu.Unlock()
	if id, err := q.journal.Submitted(s); id != "" || err != nil {
		return id, err
	}
	if err := q.refuseLocked(caller, len(s.Code), true); err != nil {
		return "", err
	}
	record, err := q.journal.Create(s)
	if err != nil {
		return "", err
	}
	q.enqueueLocked(&submission{Record: record, code: s.Code, caller: caller})
	q.updateLocked()
	return record.ID, nil
}

// refuseLocked returns why code of this size, which may need a place, can't be accepted now.
func (q *Queue) refuseLocked(caller string, size int, place bool) error {
	if q.closing {
		return ErrShuttingDown
	}
	if _, err := q.cfg.Kernel.Ready(); errors.Is(err, kernel.ErrDead) {
		return err
	}
	full := q.roomLocked
	if place {
		full = q.fullLocked
	}
	if err := full(caller, size); err != nil {
		return err
	}
	return q.lowMemory()
}

func (q *Queue) lowMemory() error {
	_, available, err := q.memory.usage(acceptAge)
	if err == nil && available < q.cfg.Limits.MinMemory {
		return fmt.Errorf("%w: %.2f GB, a run needs %.2f GB", ErrLowMemory,
			float64(available)/(1<<30), float64(q.cfg.Limits.MinMemory)/(1<<30))
	}
	return nil
}

// updateLocked sets the position of each waiting execution, and what it waits for.
func (q *Queue) updateLocked() {
	if len(q.pending) == 0 {
		return
	}
	ahead := 0
	behind := q.behindLocked()
	if behind != nil {
		ahead = 1
	}
	for i, s := range q.pending {
		if s.member == nil {
			s.SetQueuePosition(i + ahead)
			s.SetBehind(behind)
		}
	}
}

// behindLocked describes the execution that has the kernel; nil if none has it.
func (q *Queue) behindLocked() *contract.Behind {
	if q.running == nil {
		return nil
	}
	b := &contract.Behind{ExecutionID: q.running.ID, Status: q.running.Status()}
	switch b.Status {
	case contract.StatusQueued: // about to start
		b.Status = contract.StatusRunning
	case contract.StatusWaitingForInput:
		b.Prompt, b.Password = journal.Shorten(q.prompt.text, contract.MaxBehindPrompt), q.prompt.password
	}
	return b
}

// runningChanged tells the waiting executions that the running one began or ended to wait at
// a prompt, or ended for its readers without yielding the kernel.
func (q *Queue) runningChanged(p prompt) {
	q.mu.Lock()
	q.prompt = p
	q.updateLocked()
	m := q.current
	q.mu.Unlock()
	if m != nil {
		m.Changed()
	}
}

// signal wakes the runner.
func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Busy reports whether an execution has the kernel or waits for it.
func (q *Queue) Busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running != nil || q.choosing || len(q.pending) > 0
}

// cancel removes an execution from the queue; false if it does not wait there.
func (q *Queue) cancel(id, reason string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.pending, func(s *submission) bool { return s.member == nil && s.ID == id })
	if i < 0 {
		return false
	}
	q.pending[i].cancel(reason)
	q.ended.Store(true)
	q.giveUpTurnLocked(i)
	q.lendLocked()
	q.updateLocked()
	return true
}

// kernelStarted names the kernel that runs the executions from now on.
func (q *Queue) kernelStarted(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.life = id
}

// cancelAll empties the queue, because there is no kernel any more.
func (q *Queue) cancelAll(reason string) {
	q.mu.Lock()
	q.life, q.death = "", reason
	for _, s := range q.pending {
		if s.member == nil {
			s.cancel(reason)
		}
	}
	q.pending = nil
	lost := q.loseLocked()
	q.mu.Unlock()
	for _, m := range lost {
		m.Lost(reason)
	}
}

// close refuses further submits and cancels the waiting ones.
func (q *Queue) close() {
	q.mu.Lock()
	q.closing = true
	q.mu.Unlock()
	q.journal.RemoveSpare()
	q.cancelAll("the executor shut down before this started")
}

// next gives the kernel to the next execution; nil if it can't be given to any.
func (q *Queue) next() *submission {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dueLocked(time.Now())
	if q.guests.lent || q.closing || q.running != nil || len(q.pending) == 0 {
		return nil
	}
	s := q.pending[0]
	q.pending = slices.Delete(q.pending, 0, 1) // which also releases its code
	q.beginTurnLocked(s)
	q.running, q.choosing, q.prompt = s.Record, s.member != nil, prompt{}
	q.takenLocked()
	q.updateLocked()
	return s
}

// yield takes the kernel back from the execution that has it.
func (q *Queue) yield() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running, q.current, q.choosing = nil, nil, false
	q.ended.Store(true)
	q.guests.first = len(q.guests.waiting)
	q.lendLocked()
	q.updateLocked()
}

// makeSpare prepares the journal's next folder while the kernel is idle.
func (q *Queue) makeSpare() {
	q.mu.Lock()
	idle := !q.closing && q.running == nil && len(q.pending) == 0
	q.mu.Unlock()
	if idle {
		q.journal.MakeSpare()
	}
}
