// Package page connects the relay with a notebook that is open in Colab's page. The page
// dials a WebSocket on loopback; over it the relay is the MCP client and the tab is the MCP
// server, whose tools edit and run the cells that the person sees.
//
// Everything on loopback is a stranger until it showed the token of the URL that this Page
// made, and even then what it sends is bounded and checked. The package shows nothing to a
// model or terminal: its callers pass the texts of cells through relay/plain. It never logs
// a URL or a token. Start reading at Page.Connect.
package page

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Config is what a Page needs.
type Config struct {
	// Port is the listener's port on loopback; 0 takes a free one, which the Page keeps.
	Port int
	// Open opens the person's browser and returns when ctx ends. nil never opens one.
	Open    func(ctx context.Context, url string) error
	Version string       // of the relay, told to the tab
	Log     *slog.Logger // nil logs nothing
}

// Page is the place where a tab of Colab connects. Its methods may be called concurrently.
type Page struct {
	cfg    Config
	log    *slog.Logger
	timing timing
	limit  int64 // bytes of one message of a tab

	turn sync.Mutex // one start or stop of the server at a time

	mu       sync.Mutex
	closed   bool
	server   *server
	port     int    // of the last server
	token    string // what the next tab must show
	notebook string // what the token's URL opens
	slot     *Tab   // the one tab, from the end of its handshake over HTTP on
	tab      *Tab   // the same, once its tools are known
	wait     *wait  // for a tab; nil if nobody asked for one
}

// New returns a Page. It starts nothing: the Page listens from the first Connect on.
func New(cfg Config) *Page {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Page{cfg: cfg, log: log.With("component", "page"), timing: defaultTiming, limit: maxMessage, port: cfg.Port, token: newToken()}
}

// Close ends the listener, the tab and the waiting. All goroutines have ended when it returns.
func (p *Page) Close() {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	p.closed = true
	s := p.server
	if s == nil {
		p.mu.Unlock()
		return
	}
	p.server = nil
	p.finish(nil, ErrClosed)
	p.mu.Unlock()
	s.stop()
}

// State is what a Page does at the moment.
type State struct {
	Listening      bool
	Port           int
	Connected      bool
	ConnectedSince time.Time
	Waiting        bool // a notebook was opened and its tab has not connected yet
}

// State returns what the Page does at the moment.
func (p *Page) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := State{Listening: p.server != nil, Waiting: p.wait != nil}
	if state.Listening {
		state.Port = p.port
	}
	if p.tab != nil {
		state.Connected, state.ConnectedSince = true, p.tab.since
	}
	return state
}

// Tab returns the connected tab, if there is one.
func (p *Page) Tab() (*Tab, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tab, p.tab != nil
}

func (p *Page) currentToken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.token
}

// receive serves a tab that showed the token, until it is lost.
func (p *Page) receive(s *server, conn *websocket.Conn, raw net.Conn, token string) {
	tab := p.take(conn, raw, token)
	if tab == nil {
		p.refused("another tab is connected")
		s.refuseBusy(conn, raw)
		return
	}
	tab.serve(s.ctx, p.cfg.Version, func() { p.connected(tab) }, func() { p.lost(tab) })
}

// take gives the slot to a tab. It returns nil if there is a tab already, or if the token
// changed meanwhile.
func (p *Page) take(conn *websocket.Conn, raw net.Conn, token string) *Tab {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slot != nil || token != p.token {
		return nil
	}
	p.slot = newTab(newWire(conn, raw, p.timing, p.limit), p.notebook)
	return p.slot
}

// connected says that a tab's tools are known.
func (p *Page) connected(t *Tab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slot != t {
		return
	}
	t.since = time.Now()
	p.tab = t
	p.finish(t, nil)
	p.log.Info("a tab of Colab connected", "missing_tools", len(t.Missing()))
}

// lost frees the slot of a tab. The URL of a tab that was connected opens no further one.
func (p *Page) lost(t *Tab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slot = nil
	if p.tab == t {
		p.tab, p.token = nil, newToken()
		p.log.Info("the tab of Colab was lost")
	}
	if p.wait != nil && p.wait.expired {
		p.giveUp()
	}
}
