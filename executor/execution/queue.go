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
	// lastInput is the execution and the InputID of the last text that was accepted.
	lastInput atomic.Pointer[string]

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

const (
	// reportAge is how old a measurement of memory before or after a run may be.
	reportAge = 5 * time.Millisecond
	// acceptAge is how old a measurement that decides whether to accept a run may be.
	acceptAge = time.Second
)

// memoryGauge measures the machine's memory, but not more often than needed: one
// measurement takes a thirtieth of a run of 1+1.
type memoryGauge struct {
	read func() (used, available uint64, err error)

	mu              sync.Mutex
	at              time.Time
	used, available uint64
	err             error
}

// usage returns a measurement that is at most maxAge old.
func (m *memoryGauge) usage(maxAge time.Duration) (used, available uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.at) > maxAge {
		m.used, m.available, m.err = m.read()
		m.at = now
	}
	return m.used, m.available, m.err
}

// inUse returns the memory in use now, 0 if it can't be measured.
func (m *memoryGauge) inUse() uint64 {
	used, _, err := m.usage(reportAge)
	if err != nil {
		return 0
	}
	return used
}
