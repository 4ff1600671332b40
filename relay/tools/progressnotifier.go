package tools

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

// How often a host hears of a call's progress.
const (
	progressLeast = 500 * time.Millisecond // between two messages
	progressMost  = 5 * time.Second        // without one: hosts that reset their clock by it need it
	progressRunes = 300
	noOutputYet   = "running, no output yet"
)

// progressNotifier tells the host, while a call waits, the newest line of output, or how
// far a transfer is. It writes to stdout itself: the SDK's channel drops messages when they come
// fast, and may send some after the answer.
type progressNotifier struct {
	out     *lineWriter
	token   any
	started time.Time
	quit    chan struct{}
	ended   sync.WaitGroup

	mu      sync.Mutex
	line    string
	changed bool
	measure func() (line string, a amount) // nil: line is what is told
	last    float64                        // the value told before
}

// amount is how much of a call's work is done, in bytes. A total of 0 means that
// it is not known.
type amount struct{ done, total int64 }

// startProgress gives nil, whose methods do nothing, when the host gave no token.
func (r *Relay) startProgress(req mcp.CallToolRequest) *progressNotifier {
	if req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return nil
	}
	p := &progressNotifier{out: &r.out, token: req.Params.Meta.ProgressToken, started: time.Now(), quit: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

// show sets the line to tell next.
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

// measureWith makes each message ask measure, which must not block, in place of show.
func (p *progressNotifier) measureWith(measure func() (string, amount)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measure = measure
}

// stop ends the messages; none is written after it returned.
func (p *progressNotifier) stop() {
	if p == nil {
		return
	}
	close(p.quit)
	p.ended.Wait()
}

func (p *progressNotifier) run() {
	tick := time.NewTicker(progressLeast)
	defer tick.Stop()
	last := p.started
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
		}
		if line, a, changed := p.take(); changed || time.Since(last) >= progressMost {
			p.send(line, a)
			last = time.Now()
		}
	}
}

func (p *progressNotifier) take() (string, amount, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var a amount
	if p.measure != nil {
		var line string
		line, a = p.measure()
		p.changed = p.changed || p.line != line
		p.line = line
	}
	changed := p.changed
	p.changed = false
	return p.line, a, changed
}

// send writes one notification.
func (p *progressNotifier) send(line string, a amount) {
	if line == "" {
		line = noOutputYet
	}
	params := map[string]any{"progressToken": p.token, "progress": p.value(a), "message": plain.Line(line)}
	if a.total > 0 {
		params["total"] = a.total
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": "notifications/progress", "params": params})
	if err != nil {
		return // a token that came as JSON can be written as JSON
	}
	p.out.Write(append(b, '\n')) // a host that is gone ends the relay through stdin
}

// value is the bytes done, or the seconds waited where those are not known. It
// always rises, if only by a thousandth, as the protocol demands.
func (p *progressNotifier) value(a amount) float64 {
	v := time.Since(p.started).Seconds()
	if a.total > 0 {
		v = float64(a.done)
	}
	p.last = max(v, p.last+0.001)
	return p.last
}
