// Package execution runs code on the kernel, one execution at a time, and keeps
// all that each one produced in an append-only log on disk, so that it can be
// read again from any offset, after any cut, by anyone with its id.
//
// It speaks Jupyter through executor/jupyter, leaves the process to
// executor/kernel and knows nothing of HTTP. Start reading at Queue.Submit, then
// Queue.Run and runner.serve.
package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
)

// What can be wrong with a request to the queue.
var (
	ErrNotFound     = errors.New("no such execution")
	ErrNoBlob       = errors.New("no such blob")
	ErrConflict     = errors.New("this request_id was used for another submit")
	ErrQueueFull    = errors.New("too many executions wait already")
	ErrLowMemory    = errors.New("too little memory is free")
	ErrKernelBusy   = errors.New("a run holds the kernel")
	ErrNotWaiting   = errors.New("the execution waits for no input")
	ErrFinished     = errors.New("the execution has finished")
	ErrDiskFull     = errors.New("the disk is full")
	ErrShuttingDown = errors.New("the executor is shutting down")
	ErrBadOffset    = errors.New("offset is past the end of the log")
)

// Limits bound what the queue keeps. The zero value of a field means its default.
type Limits struct {
	Queue     int    // executions that wait, see Queue.full; 64
	LogBytes  int64  // events, and again blobs, of one execution; 256 MiB
	StateSize int64  // all executions together; 4 GiB, oldest finished dropped first
	Kept      int    // executions remembered, the user's and the relay's own each; 2,000
	Past      int    // request_ids known besides: this many at least, twice as many at most; 150,000
	MinMemory uint64 // bytes that must be free to accept a run; 0.5 GiB
}

// DefaultLimits are the contract's.
var DefaultLimits = Limits{Queue: 64, LogBytes: 256 << 20, StateSize: 4 << 30, Kept: 2000, Past: 150_000, MinMemory: 512 << 20}

// Config says where the queue keeps its log and what it runs on.
type Config struct {
	Kernel *kernel.Supervisor
	Dir    string // holds one folder for each execution
	// Memory is what the machine uses and has available, in bytes.
	Memory func() (used, available uint64, err error)
	Limits Limits
	Log    *slog.Logger
}

// Queue accepts executions, runs them in order and keeps what they produced.
type Queue struct {
	cfg      Config
	memory   *memory
	commands chan command
	wake     chan struct{} // buffered: something to run, or the hold ended
	stopped  chan struct{} // closed when Run ends

	mu        sync.Mutex
	byID      map[string]*entry
	byRequest map[string]*entry
	order     []*entry // oldest first
	reserve   *reserve
	past      *past // what is known of those forgotten
	spare     *folder
	pending   []*entry // in the order in which they run
	round     int      // of the one that started last
	running   *entry   // also a finished one that does not yield the kernel
	held      bool
	freed     chan struct{} // closed when a run or a Hold gives the kernel back, then replaced
	closing   bool
}

// Open reads the log that earlier executors left in cfg.Dir. What had finished
// is there again; what ran when they were killed is lost, what waited is cancelled.
func Open(cfg Config) (*Queue, error) {
	cfg.Limits = cfg.Limits.orDefault()
	q := &Queue{
		cfg:       cfg,
		memory:    &memory{read: cfg.Memory},
		commands:  make(chan command),
		wake:      make(chan struct{}, 1),
		stopped:   make(chan struct{}),
		byID:      map[string]*entry{},
		byRequest: map[string]*entry{},
		freed:     make(chan struct{}),
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the execution log's folder: %w", err)
	}
	var err error
	if q.past, err = openPast(cfg.Dir, cfg.Limits.Past); err != nil {
		return nil, err
	}
	entries, reserve, err := recoverAll(cfg, q.past)
	q.reserve = reserve
	if err != nil {
		q.past.close()
		return nil, fmt.Errorf("reading the execution log: %w", err)
	}
	for _, e := range entries {
		q.remember(e)
	}
	q.retain()
	q.reserve.flush()
	return q, nil
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits
	if l.Queue > 0 {
		d.Queue = l.Queue
	}
	if l.LogBytes > 0 {
		d.LogBytes = l.LogBytes
	}
	if l.StateSize > 0 {
		d.StateSize = l.StateSize
	}
	if l.Kept > 0 {
		d.Kept = l.Kept
	}
	if l.Past > 0 {
		d.Past = l.Past
	}
	if l.MinMemory > 0 {
		d.MinMemory = l.MinMemory
	}
	return d
}

// Submit accepts s and returns its execution's id. A RequestID seen before
// gives the same id and runs nothing. The caller has checked s against the
// contract's bounds.
func (q *Queue) Submit(s contract.Submit) (id string, err error) { return q.SubmitFor("", s) }

// SubmitFor is Submit on behalf of a caller: callers take turns.
func (q *Queue) SubmitFor(caller string, s contract.Submit) (id string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if old, ok := q.byRequest[s.RequestID]; ok {
		if !old.same(s) {
			return "", ErrConflict
		}
		return old.id, nil
	}
	if old, ok := q.past.byRequest(s.RequestID); ok {
		if !old.entry(q.cfg.Dir).same(s) {
			return "", ErrConflict
		}
		return old.ID, nil
	}
	if err := q.refuse(caller); err != nil {
		return "", err
	}
	e, err := q.create(s)
	if err != nil {
		return "", err
	}
	q.remember(e)
	q.enqueue(e, caller)
	q.renumber()
	q.signal()
	return e.id, nil
}

// refuse tells why nothing can be accepted now. The lock is held.
func (q *Queue) refuse(caller string) error {
	if q.closing {
		return ErrShuttingDown
	}
	if _, err := q.cfg.Kernel.Ready(); errors.Is(err, kernel.ErrDead) {
		return err
	}
	if q.full(caller) {
		return ErrQueueFull
	}
	_, available, err := q.memory.look(refusalAge)
	if err == nil && available < q.cfg.Limits.MinMemory {
		return fmt.Errorf("%w: %.2f GB, a run needs %.2f GB", ErrLowMemory,
			float64(available)/(1<<30), float64(q.cfg.Limits.MinMemory)/(1<<30))
	}
	return nil
}

func (q *Queue) create(s contract.Submit) (*entry, error) {
	f, err := q.nextFolder()
	var e *entry
	if err == nil {
		e, err = createEntry(f, s, q.cfg.Limits.LogBytes, q.reserve)
	}
	if isFull(err) {
		return nil, ErrDiskFull
	}
	if err != nil {
		return nil, fmt.Errorf("writing the execution log: %w", err)
	}
	return e, nil
}

func (q *Queue) remember(e *entry) {
	q.byID[e.id] = e
	q.byRequest[e.requestID] = e
	q.order = append(q.order, e)
}

// renumber tells each waiting execution how many stand before it.
func (q *Queue) renumber() {
	ahead := 0
	if q.running != nil {
		ahead = 1
	}
	for i, e := range q.pending {
		e.setPosition(i + ahead)
	}
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) find(id string) (*entry, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e, ok := q.byID[id]; ok {
		return e, nil
	}
	if old, ok := q.past.byID(id); ok {
		return old.entry(q.cfg.Dir), nil
	}
	return nil, ErrNotFound
}

// maxListedError bounds an error's text in a list.
const maxListedError = 1 << 10

// List is the newest executions, at most limit, without their events and tracebacks.
func (q *Queue) List(limit int) []contract.Execution {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]contract.Execution, 0, min(limit, len(q.order)))
	for i := len(q.order) - 1; i >= 0 && len(list) < limit; i-- {
		list = append(list, brief(q.order[i].snapshot()))
	}
	return list
}

// brief leaves out what would make a list of a thousand failures tens of megabytes.
func brief(x contract.Execution) contract.Execution {
	if x.Error != nil {
		x.Error = &contract.ExecutionError{EName: x.Error.EName, EValue: cut(x.Error.EValue, maxListedError)}
	}
	x.Reason = cut(x.Reason, maxListedError)
	return x
}

// Blob opens a payload that stands in an event of the execution as a BlobRef.
func (q *Queue) Blob(id, sha256 string) (*os.File, error) {
	e, err := q.find(id)
	if err != nil {
		return nil, err
	}
	return e.blobs.open(sha256)
}

// Busy reports whether an execution has the kernel or waits for it.
func (q *Queue) Busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running != nil || len(q.pending) > 0
}

// Read waits until there is something to say, then says it.
func (q *Queue) Read(ctx context.Context, id string, r ReadRequest) (contract.Execution, error) {
	e, err := q.find(id)
	if err != nil {
		return contract.Execution{}, err
	}
	end := time.NewTimer(r.Wait)
	defer end.Stop()
	var lively <-chan time.Time
	if r.UntilEnd && r.EventsAfter > 0 {
		timer := time.NewTimer(r.EventsAfter)
		defer timer.Stop()
		lively = timer.C
	}
	for waited := false; ; waited = true {
		changed := e.changes()
		if e.worth(r) {
			if waited {
				e.awaitEnd(ctx)
			}
			return e.read(r)
		}
		select {
		case <-changed:
		case <-lively:
			r.UntilEnd = false
		case <-end.C:
			return e.read(r)
		case <-ctx.Done():
			return contract.Execution{}, ctx.Err()
		}
	}
}
