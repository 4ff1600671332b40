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
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/mark3labs/mcp-go/mcp"
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
	tab      *Tab   // the same, once it has shaken hands over MCP
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
func (p *Page) receive(s *server, conn *websocket.Conn, token string) {
	tab := p.take(conn, token)
	if tab == nil {
		p.refused("another tab is connected")
		_ = conn.Close(websocket.StatusTryAgainLater, "another tab is connected") // which it may not read
		return
	}
	tab.serve(s.ctx, p.cfg.Version, func() { p.connected(tab) }, func() { p.lost(tab) })
}

// take gives the slot to a tab. It returns nil if there is a tab already, or if the token
// changed meanwhile.
func (p *Page) take(conn *websocket.Conn, token string) *Tab {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slot != nil || token != p.token {
		return nil
	}
	p.slot = &Tab{wire: newWire(conn, p.timing, p.limit), timing: p.timing, notebook: p.notebook, runs: newRuns(p.timing.unread)}
	return p.slot
}

// connected says that a tab has shaken hands.
func (p *Page) connected(t *Tab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slot != t {
		return
	}
	p.tab = t
	p.finish(t, nil)
	p.log.Info("a tab of Colab connected")
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
}

var (
	// ErrTabLost says that the tab was lost during a call.
	ErrTabLost = errors.New("the connection to Colab's tab was lost during the call; a cell that ran may still be running in Colab: connect again and read the cells before you repeat anything")
	// ErrRunning says that the caller's time ended while the cell still runs.
	ErrRunning = errors.New("the cell still runs in Colab: run the same cell again to wait for its end; that does not start it twice")
	// ErrClosed says that the Page was closed.
	ErrClosed = errors.New("the relay's connection to Colab's page was closed: call again to open it")
)

// WaitingError says that the caller's time ended, or that no browser could be opened, while
// the Page waits for the tab.
type WaitingError struct {
	URL     string // to open by hand; it holds the token, so it must not be logged
	Browser error  // why no browser was opened, without the token; nil if one was
}

func (e *WaitingError) Error() string {
	if e.Browser != nil {
		return e.NoBrowser() + ". Once the URL is open, accept Colab's dialog there, then call again"
	}
	return "no tab of Colab has connected yet: open the URL if no page shows it, accept Colab's dialog there, then call again; that opens no second page"
}

// NoBrowser says that no browser was opened, and why; Browser must not be nil. An error of package
// browser begins with what failed, which this says already.
func (e *WaitingError) NoBrowser() string {
	return "no browser was opened: " + strings.TrimPrefix(e.Browser.Error(), "open a browser: ")
}

// NoTabError says that no tab connected in time. The next call opens the notebook again.
type NoTabError struct {
	URL     string   // with a new token; it must not be logged
	Refused []string // why connections were refused meanwhile, in fixed words
}

func (e *NoTabError) Error() string {
	var b strings.Builder
	b.WriteString("no tab of Colab connected in time")
	for _, why := range e.Refused {
		b.WriteString("; a connection was refused: " + why)
	}
	b.WriteString(". Usual reasons: Colab's dialog was not accepted; the browser is not signed in to Google; " +
		"the browser was not allowed to connect to this computer (Chrome: site settings, local network access) or does not support it (Safari); " +
		"the browser runs on another computer")
	return b.String()
}

// OtherNotebookError says that the Page is busy with another notebook than the one asked for.
type OtherNotebookError struct {
	Notebook  string // the address that was opened; "" is Colab's empty notebook
	Connected bool   // false: its tab is connecting
}

func (e *OtherNotebookError) Error() string {
	name := e.Notebook
	if name == "" {
		name = EmptyNotebook
	}
	if e.Connected {
		return fmt.Sprintf("a tab that was opened with %q is connected, and there can be one: close that tab or disconnect it in Colab, then call again; or call without an address to use it", name)
	}
	return fmt.Sprintf("a tab with %q is connecting: call again in a few seconds", name)
}

// ToolError is an error that the page reported for a call.
type ToolError struct {
	Tool string
	Code int    // of JSON-RPC; 0 if the tool itself failed
	Text string // the page's words, bounded and safe to show
}

func (e *ToolError) Error() string {
	text := fmt.Sprintf("Colab's page refused %s: %q", e.Tool, e.Text)
	if e.Code == mcp.METHOD_NOT_FOUND || e.Code == mcp.INVALID_PARAMS { // as of a tool that it does not have
		text += ": reload the page and connect again; if that does not help, Google has changed the page: update colab-relay"
	}
	return text
}

// timing are the times of a Page. Tests shorten them.
type timing struct {
	wait      time.Duration // from the browser's start until a tab must have connected
	open      time.Duration // for the start of the browser
	handshake time.Duration // for that over MCP
	ping      time.Duration // between two pings of a tab
	pong      time.Duration // for a tab's answer to a ping, which waits for the end of a large message on a slow line
	write     time.Duration // for one message to a tab that reads slowly
	closing   time.Duration // for a tab's part in the end of a connection
	call      time.Duration // for one look at a cell that runs
	poll      time.Duration // between the first two looks at a cell that runs
	maxPoll   time.Duration // between two later looks
	follow    time.Duration // for which a cell is looked at: a VM of Colab lives no longer
	unread    time.Duration // for which the end of a run waits for its caller
}

// defaultTiming waits as long as Google's own server does. Browsers answer pings even for a
// page whose scripts they have suspended, so a tab without an answer is gone.
var defaultTiming = timing{
	wait: time.Minute, open: 30 * time.Second, handshake: 30 * time.Second,
	ping: 20 * time.Second, pong: time.Minute, write: 30 * time.Second, closing: time.Second,
	call: time.Minute, poll: time.Second, maxPoll: 5 * time.Second, follow: 24 * time.Hour, unread: 10 * time.Minute,
}
