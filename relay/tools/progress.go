package tools

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/render"
)

// How often a host hears of a call's progress.
const (
	progressLeast = 500 * time.Millisecond // between two messages
	progressMost  = 5 * time.Second        // without one: hosts that reset their clock by it need it
	progressRunes = 300
	noOutputYet   = "running, no output yet"
)

// progress tells the host the newest line of output while a call waits. It
// writes to stdout itself: the SDK's channel drops messages when they come
// fast, and may send some after the answer.
type progress struct {
	out     *lineWriter
	token   any
	started time.Time
	quit    chan struct{}
	ended   sync.WaitGroup

	mu      sync.Mutex
	line    string
	changed bool
}

// startProgress gives nil, whose methods do nothing, when the host gave no token.
func (r *Relay) startProgress(req mcp.CallToolRequest) *progress {
	if req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return nil
	}
	p := &progress{out: &r.out, token: req.Params.Meta.ProgressToken, started: time.Now(), quit: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

// show sets the line to tell next.
func (p *progress) show(line string) {
	if p == nil || line == "" {
		return
	}
	line, _ = render.Clip(line, progressRunes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = p.changed || p.line != line
	p.line = line
}

// stop ends the messages; none is written after it returned.
func (p *progress) stop() {
	if p == nil {
		return
	}
	close(p.quit)
	p.ended.Wait()
}

func (p *progress) run() {
	tick := time.NewTicker(progressLeast)
	defer tick.Stop()
	last := p.started
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
		}
		if line, changed := p.take(); changed || time.Since(last) >= progressMost {
			p.send(line)
			last = time.Now()
		}
	}
}

func (p *progress) take() (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := p.changed
	p.changed = false
	return p.line, changed
}

// send writes one notification. Its progress value is the seconds waited so far,
// which always rise, as the protocol demands.
func (p *progress) send(line string) {
	if line == "" {
		line = noOutputYet
	}
	params := map[string]any{"progressToken": p.token, "progress": time.Since(p.started).Seconds(), "message": line}
	b, err := json.Marshal(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": "notifications/progress", "params": params})
	if err != nil {
		return // a token that came as JSON can be written as JSON
	}
	p.out.Write(append(b, '\n')) // a host that is gone ends the relay through stdin
}
