package op

import (
	"fmt"
	"sync"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

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
// progress of a transfer. The methods that a call uses do nothing without one.
type progressNotifier struct {
	out     func(Progress)
	started time.Time

	mu      sync.Mutex // also held while a message is sent
	timer   *time.Timer
	stopped bool
	sent    time.Time // when the last message was sent
	said    string    // its line
	last    float64   // its value
	waiting string    // what the call waits for, said while there is no line
	reached amount    // by the last milestone
	measure func() (line string, a amount)
}

// amount is how much of a call's work is done, in bytes or iterations. A total of 0 means
// that it is unknown.
type amount struct{ done, total int64 }

// startProgress sends messages to out.
func startProgress(out func(Progress)) *progressNotifier {
	p := &progressNotifier{out: out, started: time.Now(), waiting: noOutputYet, measure: func() (string, amount) { return "", amount{} }}
	p.sent = p.started
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(progressLeast, p.tick)
	return p
}

// measureWith makes each message say what measure returns, which must not block.
func (p *progressNotifier) measureWith(measure func() (string, amount)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measure = measure
}

// show sets the line to send next.
func (p *progressNotifier) show(line string) {
	if p == nil || line == "" {
		return
	}
	line, _ = render.Clip(line, progressRunes)
	p.measureWith(func() (string, amount) { return line, p.reached })
}

// waitFor sets what to say while there is no line.
func (p *progressNotifier) waitFor(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = what
}

// milestone shows a line and how much is done, and sends both at once, however fast the steps of a
// call follow one another.
func (p *progressNotifier) milestone(line string, a amount) {
	if p == nil {
		return
	}
	p.show(line)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reached = a; !p.stopped {
		p.send(line, a)
	}
}

// stop ends the messages. None is written after it has returned.
func (p *progressNotifier) stop() {
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
	line, a := p.measure()
	isNew := line != "" && line != p.said
	if line == "" {
		line = fmt.Sprintf("%s, %.0f s", p.waiting, time.Since(p.started).Seconds())
	}
	if isNew || time.Since(p.sent) >= progressMost {
		p.send(line, a)
	}
	p.timer.Reset(progressLeast)
}

func (p *progressNotifier) send(line string, a amount) {
	p.out(Progress{Value: p.value(a), Total: a.total, Message: plain.Line(line)})
	p.sent, p.said = time.Now(), line
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
