package op

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
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

// How often a host gets progress messages of a call.
const (
	progressLeast = 500 * time.Millisecond // between two messages
	progressMost  = 5 * time.Second        // between two messages: some hosts restart their timeout at each
	progressRunes = 300
	noOutputYet   = "waiting for the VM's answer"
)

// Progress is a message of a call that waits.
type Progress struct {
	Value   float64 // which always rises
	Total   int64   // 0 if it is unknown
	Message string
}

// progressNotifier sends the host, while a call waits, the newest line of output or the
// progress of a transfer.
type progressNotifier struct {
	out     func(Progress)
	started time.Time

	mu      sync.Mutex // also held while a message is sent
	timer   *time.Timer
	stopped bool
	sent    time.Time // when the last message was sent
	last    float64   // the value sent last
	line    string
	waiting string // what the call waits for, shown while there is no line
	changed bool
	reached amount                         // by the last milestone
	measure func() (line string, a amount) // nil: send line
}

// amount is how much of a call's work is done, in bytes or iterations. A total of 0 means
// that it is unknown.
type amount struct{ done, total int64 }

// startProgress sends messages to out. It returns nil, whose methods do nothing, if out is nil.
func startProgress(out func(Progress)) *progressNotifier {
	if out == nil {
		return nil
	}
	p := &progressNotifier{out: out, started: time.Now()}
	p.sent = p.started
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(progressLeast, p.tick)
	return p
}

// show sets the line to send next.
func (p *progressNotifier) show(line string) {
	if p == nil || line == "" {
		return
	}
	line, _ = render.Clip(line, progressRunes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = p.changed || p.line != line
	p.line = line
}

// waitFor sets what to say while there is no line.
func (p *progressNotifier) waitFor(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = what
}

// measureWith makes each message use measure, which must not block, instead of show.
func (p *progressNotifier) measureWith(measure func() (string, amount)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measure = measure
}

// milestone shows a line and how much is done, and sends both at once, however fast the steps of a
// call follow one another.
func (p *progressNotifier) milestone(line string, a amount) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line, p.reached = line, a; !p.stopped {
		p.send(line, a)
	}
}

// stop ends the messages. None is written after it has returned.
func (p *progressNotifier) stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
}

func (p *progressNotifier) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	line, a := p.line, p.reached
	if p.measure != nil {
		line, a = p.measure()
		p.changed, p.line = p.changed || p.line != line, line
	}
	if line == "" {
		line = fmt.Sprintf("%s, %.0f s", cmp.Or(p.waiting, noOutputYet), time.Since(p.started).Seconds())
	}
	if p.changed || time.Since(p.sent) >= progressMost {
		p.send(line, a)
	}
	p.timer.Reset(progressLeast)
}

func (p *progressNotifier) send(line string, a amount) {
	p.out(Progress{Value: p.value(a), Total: a.total, Message: plain.Line(line)})
	p.sent, p.changed = time.Now(), false
}

// value returns the amount done, or the seconds waited if that is unknown. It always rises,
// at least by a thousandth, as the protocol requires.
func (p *progressNotifier) value(a amount) float64 {
	v := time.Since(p.started).Seconds()
	if a.total > 0 {
		v = float64(a.done)
	}
	p.last = max(v, p.last+0.001)
	return p.last
}
