// Package execution runs code on the kernel, one execution at a time, and hands all
// that each one produces to the journal, where anyone who has its id can read it.
//
// It speaks Jupyter through executor/jupyter, leaves the process to executor/kernel
// and the disk to executor/journal, and knows nothing of HTTP. Start reading at
// Queue.Submit, then Queue.Run and runner.serve.
package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	waiting []*waiter       // in the order in which they get the kernel
	current *waiter         // has its turn; its execution may have finished without yielding the kernel
	running *journal.Record // the execution of current; nil while current is asked for it
	turns   int             // that were given
	served  map[line]int    // the last turn of each line
	life    string          // id of the kernel that they run on; empty while there is none
	death   string          // why there is no kernel, if there was one
	prompt  prompt          // the newest of running
	since   time.Time       // when current got the kernel
	guests  guests
	closing bool
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
		served:   map[line]int{},
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
	q.addLocked(&waiter{Source: &single{record, s.Code}, caller: caller, single: record})
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
	if err := q.fullLocked(caller, size, place); err != nil {
		return err
	}
	return q.LowMemory()
}

// LowMemory returns an ErrLowMemory while too little memory is free for a run.
func (q *Queue) LowMemory() error {
	_, available, err := q.memory.usage(acceptAge)
	if err == nil && available < q.cfg.Limits.MinMemory {
		return fmt.Errorf("%w: %.2f GB, a run needs %.2f GB", ErrLowMemory,
			float64(available)/(1<<30), float64(q.cfg.Limits.MinMemory)/(1<<30))
	}
	return nil
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
	q.orderLocked()
	w := q.current
	q.mu.Unlock()
	w.Changed()
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
	return q.current != nil || q.readyLocked()
}

// readyLocked reports whether the turn of what waits first has come.
func (q *Queue) readyLocked() bool { return len(q.waiting) > 0 && !q.waiting[0].later }

// remove takes what waits and matches out of the queue. Nil means that nothing does.
func (q *Queue) remove(match func(*waiter) bool) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.waiting, match)
	if i < 0 {
		return nil
	}
	w := q.waiting[i]
	q.waiting = slices.Delete(q.waiting, i, i+1)
	q.lendLocked()
	q.orderLocked()
	return w
}

// cancel removes an execution from the queue; false if it does not wait there.
func (q *Queue) cancel(id string) bool {
	w := q.remove(func(w *waiter) bool { return w.single != nil && w.single.ID == id })
	if w == nil {
		return false
	}
	w.Lost("cancelled before it started")
	q.ended.Store(true)
	return true
}

// kernelStarted names the kernel that runs the executions from now on.
func (q *Queue) kernelStarted(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.life = id
}

// loseAll empties the queue, because there is no kernel any more. What has the kernel learns that from
// the outcome of its execution.
func (q *Queue) loseAll(reason string) {
	q.mu.Lock()
	q.life, q.death = "", reason
	lost := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	for _, w := range lost {
		w.Lost(reason)
	}
}

// close refuses further submits and cancels the waiting ones.
func (q *Queue) close() {
	q.mu.Lock()
	q.closing = true
	q.mu.Unlock()
	q.loseAll("the executor shut down before this started")
}

// next gives the kernel to what waits first; nil if it can't be given to any.
func (q *Queue) next() *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.guests.lent || q.closing || q.current != nil || !q.readyLocked() {
		return nil
	}
	w := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	if len(q.served) > maxLines {
		clear(q.served)
	}
	q.turns++
	q.served[w.line()] = q.turns
	q.current, q.running, q.prompt, q.since = w, w.single, prompt{}, time.Now()
	q.orderLocked()
	return w
}

// yield takes the kernel back from the execution that has it.
func (q *Queue) yield() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.current, q.running = nil, nil
	q.ended.Store(true)
	q.guests.first = len(q.guests.waiting)
	q.lendLocked()
	q.orderLocked()
}

// maxQueuedCode bounds the code of all that waits, executions and sources, in bytes, because it is
// in memory until they start.
const maxQueuedCode = 32 << 20

// fullLocked returns why there is no room for size bytes of the caller's code, and a place if it needs
// one; nil if there is. All callers share Limits.Queue places and maxQueuedCode bytes. As much of both
// again is for callers that have nothing waiting, one place each, so that a caller with many executions
// keeps no other out. A source needs no place, but its code needs room.
func (q *Queue) fullLocked(caller string, size int, place bool) error {
	places, room := q.cfg.Limits.Queue, maxQueuedCode
	executions, code, waits, has := 0, 0, false, false
	for _, w := range q.waiting {
		code += w.Size()
		has = has || w.caller == caller
		if w.single != nil {
			executions++
			waits = waits || w.caller == caller
		}
	}
	if c := q.current; c != nil && c.single == nil {
		code += c.Size()
		has = has || c.caller == caller
	}
	if !waits {
		places *= 2
	}
	if !has {
		room *= 2
	}
	switch {
	case place && executions >= places:
		return ErrQueueFull
	case code+size > room:
		return fmt.Errorf("%w: %.1f MiB are waiting, this code has %.1f MiB, and the limit is %d MiB",
			ErrQueuedCode, float64(code)/(1<<20), float64(size)/(1<<20), room>>20)
	}
	return nil
}

// line is what takes turns: a caller's executions, or its sources.
type line struct {
	caller  string
	sources bool
}

func (w *waiter) line() line { return line{w.caller, w.single == nil} }

// maxLines is how many lines are remembered that have nothing waiting.
const maxLines = 256

// addLocked has w wait.
func (q *Queue) addLocked(w *waiter) {
	q.waiting = append(q.waiting, w)
	q.orderLocked()
}

// orderLocked puts in order what waits, and tells each execution its position and what it waits for.
// The kernel goes to the line that had it least recently: a caller that waits for each answer before it
// submits again has as many turns as one that submits many, and other runs go between the executions of
// a source. A line that is not remembered counts as if it had just had a turn, because whoever invents
// callers must not come before others.
func (q *Queue) orderLocked() {
	if len(q.waiting) == 0 {
		return
	}
	behind, ahead := q.behindLocked(), 0
	if behind != nil {
		ahead = 1
	}
	before := make(map[line]int, len(q.waiting))
	for _, w := range q.waiting {
		l := w.line()
		if _, known := q.served[l]; !known {
			q.served[l] = q.turns
		}
		if w.served, w.before = q.served[l], math.MaxInt; !w.later {
			w.before = before[l]
			before[l]++
		}
	}
	slices.SortStableFunc(q.waiting, func(a, b *waiter) int {
		if c := cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(a.served, b.served)); c != 0 || (a.single == nil) == (b.single == nil) {
			return c
		} else if a.single != nil {
			return -1
		}
		return 1
	})
	for i, w := range q.waiting {
		if w.single != nil {
			w.single.SetQueuePosition(i + ahead)
			w.single.SetBehind(behind)
		}
	}
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

const (
	// soonFree is how long a call waits for the execution or the call that has the kernel.
	// Two concurrent inspections of the variables take about 10 ms each. A cleanup may take
	// longer, and an execution that has ended for its readers may never yield the kernel.
	soonFree = 2 * time.Second
	// maxGuests is how many calls wait at the same time.
	maxGuests = 128
)

// BusyError is ErrKernelBusy, and the execution that has the kernel.
type BusyError struct{ Behind contract.Behind }

func (e *BusyError) Error() string {
	return fmt.Sprintf("run %s is using the kernel", e.Behind.ExecutionID)
}

// Is makes it an ErrKernelBusy.
func (e *BusyError) Is(target error) bool { return target == ErrKernelBusy }

// busyLocked returns why the kernel is not idle.
func (q *Queue) busyLocked() error {
	if b := q.behindLocked(); b != nil {
		return &BusyError{*b}
	}
	return ErrKernelBusy
}

// guests are the calls of WithIdleKernel.
type guests struct {
	waiting []chan struct{} // one for each call, closed when it gets the kernel
	first   int             // how many of them get it before the next execution
	lent    bool            // a call has the kernel
}

// WithIdleKernel calls f with an idle kernel, which no execution gets until f returns.
// f's context ends with the kernel. When an execution ends, all calls that wait have the
// kernel before the next one, so that they get it also while the queue is never empty.
//
// The error is ErrKernelBusy if the call does not get the kernel within soonFree, or an execution has
// had it for that long already, and kernel.ErrStarting or kernel.ErrDead if there is no kernel.
func (q *Queue) WithIdleKernel(ctx context.Context, f func(ctx context.Context, k *kernel.Kernel) error) error {
	turn, err := q.visit()
	if err == nil {
		err = q.await(ctx, turn)
	}
	if err != nil {
		return err
	}
	defer q.giveBack()
	k, err := q.cfg.Kernel.Ready()
	if err != nil {
		return err
	}
	ctx, cancel := k.WhileRunning(ctx)
	defer cancel()
	err = f(ctx, k)
	select {
	case <-k.Done():
		return fmt.Errorf("%w: the kernel ended during the call: %s", kernel.ErrStarting, k.Reason())
	default:
		return err
	}
}

// visit queues a call. The channel is closed when the call has the kernel.
func (q *Queue) visit() (turn chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, err := q.cfg.Kernel.Ready(); err != nil {
		return nil, err
	}
	goesOn := q.running != nil && !q.running.Status().Finished() && time.Since(q.since) >= soonFree
	if goesOn || len(q.guests.waiting) >= maxGuests {
		return nil, q.busyLocked()
	}
	turn = make(chan struct{})
	q.guests.waiting = append(q.guests.waiting, turn)
	q.lendLocked()
	return turn, nil
}

// await waits until the call has the kernel.
func (q *Queue) await(ctx context.Context, turn chan struct{}) error {
	limit := time.NewTimer(soonFree)
	defer limit.Stop()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return q.leave(turn, ctx.Err())
	case <-limit.C:
		return q.leave(turn, nil)
	}
}

// leave gives up the turn of a call that waits. If the call has the kernel by now, there is no
// error. Without a reason, the error says that the kernel is busy.
func (q *Queue) leave(turn chan struct{}, reason error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.guests.waiting, turn)
	if i < 0 {
		return nil
	}
	q.guests.waiting = slices.Delete(q.guests.waiting, i, i+1)
	q.guests.first = min(q.guests.first, len(q.guests.waiting))
	if reason == nil {
		reason = q.busyLocked()
	}
	return reason
}

// lendLocked lends the kernel to the next call if it is free and no execution comes first.
func (q *Queue) lendLocked() {
	g := &q.guests
	if q.current != nil || g.lent || len(g.waiting) == 0 || g.first == 0 && q.readyLocked() {
		return
	}
	close(g.waiting[0])
	g.waiting = slices.Delete(g.waiting, 0, 1)
	g.first = max(g.first-1, 0)
	g.lent = true
}

func (q *Queue) giveBack() {
	q.mu.Lock()
	q.guests.lent = false
	q.lendLocked()
	q.mu.Unlock()
	q.signal()
}
