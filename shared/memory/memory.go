// Package memory bounds what a process holds of large things from outside, whatever is asked
// of it in parallel: a hundred calls that each stay within their own bounds took gigabytes.
//
// Things up to Small are free. Anything larger takes a turn, of which a process has few, or
// counts against a budget. A turn is taken in the order Notebooks, Answering, Pictures,
// Arriving, Decoding, and nobody holds two of the same kind, so no two callers wait for each
// other. A wait ends with the caller's context. Start reading at Turns, then at Hold.
package memory

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

const (
	// Most is what the relay takes, in bytes, whatever is asked of it. What follows adds up to it.
	Most = 300 << 20
	// Program is the part of Most for the program itself: its code, connections, stacks, and
	// what takes no turn because it is small. An idle relay takes 15 MB.
	Program = 32 << 20
	// History is what waits to be written into the history.
	History = 16 << 20
	// Small is the size in bytes of what needs no turn: nearly all answers are smaller, so that a
	// crowd of large ones does not delay them.
	Small = 256 << 10
	// FreeDisplays is what a call holds of displays without a part of that budget.
	FreeDisplays = 128 << 10
)

// Turns bounds how many callers hold something large of one kind.
type Turns struct {
	free *semaphore.Weighted
	most int64
}

// NewTurns returns n turns, each for so many bytes.
func NewTurns(n, bytes int64) *Turns { return &Turns{semaphore.NewWeighted(n), n * bytes} }

// Most returns how many bytes all who have a turn hold together.
func (t *Turns) Most() int64 { return t.most }

// The turns of this process, in the order in which one caller may take several.
var (
	// Notebooks are runs of notebooks that hold payloads, and edit the file.
	Notebooks = NewTurns(1, 48<<20)
	// Answering are calls whose answer has pictures, until the host has read it.
	Answering = NewTurns(5, 4<<20)
	// Pictures are large pictures that are decoded, one after the other. They take their
	// memory in the turn of Decoding, which they wait for here: so an answer waits for one of
	// them at most. SmallPictures do not wait for large ones.
	Pictures      = NewTurns(1, 0)
	SmallPictures = NewTurns(2, 13<<20)
	// Arriving are answers that an executor sends. Its slowness holds a turn, but nothing of
	// the kinds below.
	Arriving = NewTurns(2, 16<<20)
	// Decoding are an answer that becomes structs, or a large picture that is decoded. It lasts
	// for moments.
	Decoding = NewTurns(1, 84<<20)
)

// Take waits for a turn until ctx ends. The caller must call done, once or more often.
func (t *Turns) Take(ctx context.Context) (done func(), err error) {
	if err := t.free.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	return sync.OnceFunc(func() { t.free.Release(1) }), nil
}

// Budget is a number of bytes that callers share without waiting.
type Budget struct {
	most int64
	used atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Most returns how many bytes callers share.
func (b *Budget) Most() int64 { return b.most }

// The budgets of this process.
var (
	// Displays are the payloads of displays that calls hold until they answer, and the reports
	// of the relay's own code, beside FreeDisplays for each call.
	Displays = NewBudget(16 << 20)
	// Trees are the lists of remote folders that are downloaded or listed.
	Trees = NewBudget(18 << 20)
	// Events are the events that calls take in, if they asked for more than Small at once.
	Events = NewBudget(8 << 20)
)

// Take takes n bytes, unless so many are not left.
func (b *Budget) Take(n int64) bool {
	if b.used.Add(n) > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

// Return returns n bytes that were taken.
func (b *Budget) Return(n int64) { b.used.Add(-n) }

// Holding is what one caller holds at present.
type Holding struct {
	mu   sync.Mutex
	held map[*Turns]func()
}

type key struct{}

// Hold returns a context in which an answer that is read keeps its turns until done is called,
// because its text and what is made of it live so long. The caller must not wait for another
// caller before that. If ctx has a Holding, its own caller ends it.
func Hold(ctx context.Context) (_ context.Context, done func()) {
	if ctx.Value(key{}) != nil {
		return ctx, func() {}
	}
	h := &Holding{}
	return context.WithValue(ctx, key{}, h), h.Done
}

// Of returns the Holding of ctx. If there is none, it is a new one that the caller must end:
// own is true.
func Of(ctx context.Context) (h *Holding, own bool) {
	if h, ok := ctx.Value(key{}).(*Holding); ok {
		return h, false
	}
	return &Holding{}, true
}

// Take takes a turn, unless it is held already.
func (h *Holding) Take(ctx context.Context, t *Turns) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[t] != nil {
		return nil
	}
	done, err := t.Take(ctx)
	if err != nil {
		return err
	}
	if h.held == nil {
		h.held = map[*Turns]func(){}
	}
	h.held[t] = done
	return nil
}

// Done gives everything back.
func (h *Holding) Done() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, done := range h.held {
		done()
	}
	h.held = nil
}
