package op

import (
	"context"
	"sync"
)

// turns are the turns of the calls in progress. Each runtime has its own, so that a hundred calls
// of one that hangs keep no call of another one waiting. Calls that name no runtime that is paired
// share one more set.
type turns struct {
	mu sync.Mutex
	of map[string]*runtimeTurns // by the runtime's name; those of runtimes without calls are dropped
}

// runtimeTurns are the turns of one runtime.
type runtimeTurns struct {
	running chan struct{} // one entry for each call in progress, up to maxCalls
	holding chan struct{} // one entry for each call that may wait long, up to maxHolding
	calls   int           // that have a turn or wait for one; guarded by turns.mu
}

// turn is one call's place among those of its runtime.
type turn struct {
	of      *turns
	runtime string
	own     *runtimeTurns
}

// take waits until a call of a runtime may be in progress. It reports false if ctx ends before. The
// caller must leave the turn.
func (t *turns) take(ctx context.Context, runtime string) (turn, bool) {
	own := t.join(runtime)
	select {
	case own.running <- struct{}{}:
		return turn{t, runtime, own}, true
	case <-ctx.Done():
		t.quit(runtime)
		return turn{}, false
	}
}

func (t turn) leave() {
	if t.own != nil { // nil for a call that failed before
		<-t.own.running
		t.of.quit(t.runtime)
	}
}

func (t *turns) join(name string) *runtimeTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.of[name]
	if own == nil {
		own = &runtimeTurns{running: make(chan struct{}, maxCalls), holding: make(chan struct{}, maxHolding)}
		t.of[name] = own
	}
	own.calls++
	return own
}

func (t *turns) quit(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[name].calls--; t.of[name].calls == 0 {
		delete(t.of, name)
	}
}

// hold returns a place among the calls that may wait long; nil if all are taken.
func (t turn) hold() (release func()) {
	select {
	case t.own.holding <- struct{}{}:
		return func() { <-t.own.holding }
	default:
		return nil
	}
}
