package keep

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Errors of Flights.
var (
	// ErrUnderWay: the caller's time ended before the work did.
	ErrUnderWay = errors.New("the work goes on")
	// ErrFull: as many pieces of work are under way, or wait for a caller, as there may be.
	ErrFull = errors.New("too much work is under way")
)

// Flights are pieces of work in the background, each under a key, that callers join: work goes
// on when a caller stops waiting, and its result waits for that caller to come back. It is
// forgotten once every caller has it.
type Flights[T any] struct {
	// Unread is how long a result waits for a caller who left; what it says may be wrong later.
	Unread time.Duration
	// Most bounds the pieces of work; 0 for no bound.
	Most int
	// Drop frees what is large of a result for which nobody waits now; nil for nothing.
	Drop func(*T)

	ctx    context.Context // of the work
	cancel context.CancelCauseFunc
	group  sync.WaitGroup

	mu    sync.Mutex
	known map[string]*work[T]
}

// work is a piece of work. The mutex of its Flights guards all but the first four fields.
type work[T any] struct {
	About any // as Join was given by the caller that began it
	Began time.Time

	of      *Flights[T]
	key     string
	steps   []string      // work has few
	changed chan struct{} // closed when there is another one, and at the end
	ended   time.Time     // zero before; by the wall clock, which goes on while this computer sleeps
	result  T
	err     error
	waiting int // callers that wait
	left    int // callers that stopped waiting, and have not come back
}

// Flight is a caller's part in a piece of work.
type Flight[T any] struct {
	*work[T]
	told int // steps
}

// NewFlights returns Flights without work. A caller must Close them.
func NewFlights[T any](unread time.Duration) *Flights[T] {
	f := &Flights[T]{Unread: unread, known: map[string]*work[T]{}}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	return f
}

// Join returns the work under that key, for which the caller must Wait, and begins it if there is
// none, or none whose result is fresh. After Close no work begins, and the error is Close's.
func (f *Flights[T]) Join(key string, about any, do func(ctx context.Context, say func(step string)) (T, error)) (*Flight[T], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prune()
	w := f.known[key]
	switch {
	case w != nil:
		w.left = max(w.left-1, 0)
	case f.ctx.Err() != nil:
		return nil, context.Cause(f.ctx)
	case f.Most > 0 && len(f.known) >= f.Most:
		return nil, ErrFull
	default:
		w = &work[T]{About: about, Began: time.Now(), of: f, key: key, changed: make(chan struct{})}
		f.known[key] = w
		f.group.Go(func() { w.end(do(f.ctx, w.say)) })
	}
	w.waiting++
	return &Flight[T]{w, max(len(w.steps)-1, 0)}, nil
}

// prune forgets results that nobody came back for in time.
func (f *Flights[T]) prune() {
	for key, w := range f.known {
		if !w.ended.IsZero() && w.waiting == 0 && time.Since(w.ended) > f.Unread {
			delete(f.known, key)
		}
	}
}

// Find returns what the work under that key is about, nil if there is none, and whether it is
// under way.
func (f *Flights[T]) Find(key string) (about any, underWay bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prune()
	w := f.known[key]
	if w == nil {
		return nil, false
	}
	return w.About, w.ended.IsZero()
}

// Forget lets the next Join of that key begin new work.
func (f *Flights[T]) Forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, key)
}

// Close ends the context of the work with that cause, and returns when all work has ended.
func (f *Flights[T]) Close(cause error) {
	f.mu.Lock()
	f.cancel(cause)
	f.mu.Unlock()
	f.group.Wait()
}

// say adds a step for those who wait.
func (w *work[T]) say(step string) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if n := len(w.steps); n == 0 || w.steps[n-1] != step {
		w.steps = append(w.steps, step)
		close(w.changed)
		w.changed = make(chan struct{})
	}
}

func (w *work[T]) end(result T, err error) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.result, w.err, w.ended = result, err, time.Now().Round(0)
	w.drop()
	close(w.changed)
}

func (w *work[T]) drop() {
	if w.waiting == 0 && w.of.Drop != nil {
		w.of.Drop(&w.result)
	}
}

// Step returns the newest step.
func (w *work[T]) Step() string {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if len(w.steps) == 0 {
		return ""
	}
	return w.steps[len(w.steps)-1]
}

// Wait returns how the work ended, and passes on each step; a caller that joined gets them from
// the present one on. If ctx ends before the work, Wait returns ErrUnderWay, and the next Join of
// the key counts as this caller's.
func (c *Flight[T]) Wait(ctx context.Context, step func(string)) (T, error) {
	for {
		c.of.mu.Lock()
		steps, changed, ended := slices.Clone(c.steps[c.told:]), c.changed, !c.ended.IsZero()
		if c.told += len(steps); len(steps) == 0 && (ended || ctx.Err() != nil) {
			defer c.of.mu.Unlock()
			return c.leave(ended)
		}
		c.of.mu.Unlock()
		for _, each := range steps {
			step(each)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// leave counts a caller out, who gets the result if the work has ended.
func (c *Flight[T]) leave(ended bool) (result T, err error) {
	c.waiting--
	if !ended {
		c.left++
		return result, ErrUnderWay
	}
	result, err = c.result, c.err
	if c.drop(); c.waiting+c.left == 0 && c.of.known[c.key] == c.work {
		delete(c.of.known, c.key)
	}
	return result, err
}

// Repeat calls f until it is done or fails, with a pause after each call. When ctx ends in a
// pause, its cause is the error.
func Repeat(ctx context.Context, pause time.Duration, f func() (done bool, err error)) error {
	for {
		if done, err := f(); done || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
