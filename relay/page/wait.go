package page

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Request says which notebook to open.
type Request struct {
	NotebookURL string // "" takes the tab that is connected, or Colab's empty notebook
}

// Step is how far a Connect has come, of StepCount.
type Step int

// The steps of a Connect, in their order.
const (
	Listening Step = 1 // the listener is open
	Opened    Step = 2 // the browser was asked to open the notebook
	Connected Step = 3 // the tab is connected

	StepCount = 3
)

var (
	errReplaced  = errors.New("another call asked for another notebook, so the relay no longer waits for this one")
	errNoBrowser = errors.New("the relay was set up to open none")
)

// wait is the waiting for a tab, which callers join.
type wait struct {
	notebook string
	url      string
	opened   chan struct{} // closed when the browser was asked
	browser  error         // why it was not; read it after opened
	done     chan struct{} // closed when the waiting has ended
	tab      *Tab          // the tab or the error: read them after done
	err      error

	// The rest belongs to the Page's mutex.
	told    bool     // a caller was told that no browser was opened
	refused []string // why connections were refused
}

// Connect returns the connected tab. It starts what is missing, opens the notebook in the
// browser and waits for its tab. step, which may be nil, gets each step once.
//
// When ctx ends it returns *WaitingError while the waiting goes on: the same call joins it
// and opens no second page. It returns *WaitingError at once, the first time, if no browser
// was opened. It returns *NoTabError 60 s after the browser was asked, with a URL that still
// works; *OtherNotebookError if a tab with another notebook is there; ErrClosed if the Page
// was closed meanwhile.
func (p *Page) Connect(ctx context.Context, r Request, step func(Step)) (*Tab, error) {
	if err := CheckNotebookURL(r.NotebookURL); err != nil {
		return nil, err
	}
	if step == nil {
		step = func(Step) {}
	}
	w, err := p.begin(r.NotebookURL)
	if err != nil {
		return nil, err
	}
	step(Listening)
	if !either(ctx, w.opened, w.done) {
		return nil, &WaitingError{URL: w.url}
	}
	step(Opened)
	if err := p.tellOnce(w); err != nil {
		return nil, err
	}
	if !either(ctx, w.done, w.done) {
		return nil, &WaitingError{URL: w.url}
	}
	if w.err == nil {
		step(Connected)
	}
	return w.tab, w.err
}

// either waits until one of two channels is closed. It returns false if ctx ended before.
func either(ctx context.Context, a, b <-chan struct{}) bool {
	select {
	case <-a:
	case <-b:
	case <-ctx.Done():
		select { // which may have ended at the same time
		case <-a:
		case <-b:
		default:
			return false
		}
	}
	return true
}

// begin returns the waiting to join, which has ended if a tab is connected.
func (p *Page) begin(notebook string) (*wait, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.listen(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slot != nil && notebook != "" && notebook != p.slot.notebook {
		return nil, &OtherNotebookError{Notebook: p.slot.notebook, Connected: p.tab != nil}
	}
	switch {
	case p.tab != nil:
		w := newWait(notebook, "")
		close(w.opened)
		w.tab = p.tab
		close(w.done)
		return w, nil
	case p.wait != nil && (notebook == "" || notebook == p.wait.notebook):
		return p.wait, nil
	}
	p.finish(nil, errReplaced)
	return p.open(notebook)
}

// open begins to wait for a tab with a notebook.
func (p *Page) open(notebook string) (*wait, error) {
	if notebook != p.notebook { // an earlier URL, which a person may still open, is for another notebook
		p.token, p.notebook = newToken(), notebook
	}
	url, err := address(notebook, p.port, p.token)
	if err != nil {
		return nil, err
	}
	w := newWait(notebook, url)
	p.wait = w
	if p.slot != nil { // its tab is just connecting
		close(w.opened)
	}
	s := p.server
	s.begin(func() { p.await(s.ctx, w) })
	return w, nil
}

func newWait(notebook, url string) *wait {
	return &wait{notebook: notebook, url: url, opened: make(chan struct{}), done: make(chan struct{})}
}

// await opens the browser, and ends the waiting when its time is over. A tab that is just connecting
// gets its own time.
func (p *Page) await(ctx context.Context, w *wait) {
	select {
	case <-w.opened:
	default:
		w.browser = p.openBrowser(ctx, w.url)
		close(w.opened)
	}
	timer := time.NewTimer(p.timing.wait)
	defer timer.Stop()
	for connecting := true; connecting; timer.Reset(p.timing.handshake) {
		select {
		case <-w.done:
			return
		case <-timer.C:
		}
		p.mu.Lock()
		if connecting = p.slot != nil; !connecting && p.wait == w {
			p.giveUp()
		}
		p.mu.Unlock()
	}
}

// openBrowser returns why no browser was opened, in words without the token.
func (p *Page) openBrowser(ctx context.Context, url string) error {
	if p.cfg.Open == nil {
		return errNoBrowser
	}
	ctx, cancel := context.WithTimeout(ctx, p.timing.open)
	defer cancel()
	err := p.cfg.Open(ctx, url)
	if err == nil {
		return nil
	}
	_, token, _ := strings.Cut(url, "#mcpProxyToken=")
	token, _, _ = strings.Cut(token, "&")
	if text := err.Error(); strings.Contains(text, token) {
		return errors.New(strings.ReplaceAll(text, token, "…"))
	}
	return err
}

// tellOnce returns, the first time, that no browser was opened: a person must open the URL,
// and waiting would keep it from them.
func (p *Page) tellOnce(w *wait) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait != w || w.browser == nil || w.told {
		return nil
	}
	w.told = true
	return &WaitingError{URL: w.url, Browser: w.browser}
}

// giveUp ends the waiting without a tab. The token is new, and stays valid for a person who
// opens its URL later.
func (p *Page) giveUp() {
	p.token = newToken()
	url, err := address(p.notebook, p.port, p.token)
	if err != nil {
		p.finish(nil, err)
		return
	}
	p.finish(nil, &NoTabError{URL: url, Refused: p.wait.refused})
	p.log.Info("no tab of Colab connected in time")
}

// finish ends the waiting, if there is one.
func (p *Page) finish(t *Tab, err error) {
	if p.wait == nil {
		return
	}
	p.wait.tab, p.wait.err = t, err
	close(p.wait.done)
	p.wait = nil
}

// refused records why a connection was refused. Each reason is logged once for each waiting,
// so that strangers can't fill the log.
func (p *Page) refused(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait == nil || slices.Contains(p.wait.refused, why) {
		return
	}
	p.wait.refused = append(p.wait.refused, why)
	p.log.Info("refused a connection to Colab's page", "reason", why)
}

// listen starts the server, if none runs.
func (p *Page) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.server != nil:
		return nil
	}
	listeners, err := listen(p.port)
	if err != nil && p.cfg.Port == 0 { // the port of an earlier server is taken
		listeners, err = listen(0)
	}
	if err != nil {
		return err
	}
	p.server = serve(p, listeners)
	p.port = p.server.port
	return nil
}
