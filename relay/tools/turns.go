package tools

import (
	"context"
	"encoding/json"
	"sync"

	"colabrelay/relay/notebook"
	"colabrelay/relay/runtimes"
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
	asked   string // the runtime argument
	found   bool   // the result of looking for it follows
	target  runtimes.Runtime
	err     error
	holding chan struct{}
	leave   func()
}

// turnFor finds the runtime of a call, and waits until the call may be in progress. It reports
// false if ctx ends before. The caller must leave the turn.
func (r *Relay) turnFor(ctx context.Context, arguments json.RawMessage) (*turn, bool) {
	t := r.find(runtimeArgument(arguments))
	name := t.target.Name
	own := r.turns.join(name)
	select {
	case own.running <- struct{}{}:
		t.holding = own.holding
		t.leave = func() {
			<-own.running
			r.turns.quit(name)
		}
		return t, true
	case <-ctx.Done():
		r.turns.quit(name)
		return nil, false
	}
}

// find finds the runtime of a call. What it can't find, the call itself reports.
func (r *Relay) find(asked string) (t *turn) {
	t = &turn{asked: asked}
	defer func() { t.found = recover() == nil }()
	if len(r.cfg.Problems) == 0 {
		t.target, t.err = r.cfg.Resolve(asked)
	}
	return t
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
func (t *turn) hold() (release func()) {
	select {
	case t.holding <- struct{}{}:
		return func() { <-t.holding }
	default:
		return nil
	}
}

// runtimeArgument returns the runtime that a call's arguments name. The tool checks them later.
func runtimeArgument(arguments json.RawMessage) (name string) {
	notebook.Members(arguments, func(key string, value []byte) {
		if key = bare(key); key == "runtimename" || key == "runtime" {
			name = ""
			_ = json.Unmarshal(value, &name)
		}
	})
	return name
}
