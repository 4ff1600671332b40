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

// wait is the waiting for a tab, which callers join. The Page's mutex guards until and refused.
type wait struct {
	notebook string
	url      string
	until    time.Time     // when it is given up
	refused  []string      // why connections were refused
	done     chan struct{} // closed when the waiting has ended
	tab      *Tab          // the tab or the error: read them after done
	err      error
}

// Connect returns the connected tab. It starts what is missing, opens the notebook in the
// browser and waits for its tab. step, which may be nil, gets each step once.
//
// When ctx ends it returns *WaitingError, and the same call joins the waiting: it opens no second
// page. It returns *WaitingError at once, the first time, if no browser was opened: a person must
// open the URL, and waiting would keep it from them. It returns *NoTabError 60 s after the browser
// was asked, with a URL that still works; *OtherNotebookError if a tab with another notebook is
// there; ErrClosed if the Page was closed meanwhile.
func (p *Page) Connect(ctx context.Context, r Request, step func(Step)) (*Tab, error) {
	if err := CheckNotebookURL(r.NotebookURL); err != nil {
		return nil, err
	}
	if step == nil {
		step = func(Step) {}
	}
	w, begun, err := p.begin(r.NotebookURL)
	if err != nil {
		return nil, err
	}
	step(Listening)
	if begun {
		select {
		case err := <-p.openBrowser(w):
			if err != nil {
				return nil, &WaitingError{URL: w.url, Browser: err}
			}
		case <-w.done:
		case <-ctx.Done(): // a browser that is slow to start gets the URL nevertheless
		}
	}
	step(Opened)
	if err := p.await(ctx, w); err != nil {
		return nil, err
	}
	if w.err == nil {
		step(Connected)
	}
	return w.tab, w.err
}

// begin returns the waiting to join, which has ended if a tab is connected, and whether it has just
// begun: then the browser is to be opened.
func (p *Page) begin(notebook string) (w *wait, begun bool, err error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.listen(); err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slot != nil && notebook != "" && notebook != p.slot.notebook {
		return nil, false, &OtherNotebookError{Notebook: p.slot.notebook, Connected: p.tab != nil}
	}
	if p.wait != nil && p.slot == nil && time.Now().After(p.wait.until) { // while nobody waited
		p.giveUp()
	}
	if p.wait != nil && (notebook == "" || notebook == p.wait.notebook) {
		return p.wait, false, nil
	}
	p.finish(nil, errReplaced)
	if notebook != p.notebook && p.slot == nil { // an earlier URL, which a person may still open, is for another notebook
		p.token, p.notebook = newToken(), notebook
	}
	url, err := address(notebook, p.port, p.token)
	if err != nil {
		return nil, false, err
	}
	p.wait = &wait{notebook: notebook, url: url, until: time.Now().Add(p.timing.open + p.timing.wait), done: make(chan struct{})}
	w = p.wait
	if p.tab != nil {
		p.finish(p.tab, nil)
	}
	return w, p.slot == nil, nil // a tab in the slot is just connecting
}

// await waits for the end of the waiting, and ends it when its time is over. A tab that is just
// connecting gets its own time.
func (p *Page) await(ctx context.Context, w *wait) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.done:
			return nil
		case <-timer.C:
			p.mu.Lock()
			left := time.Until(w.until)
			if p.slot != nil {
				left = max(left, p.timing.handshake)
			}
			if timer.Reset(left); left <= 0 && p.wait == w {
				p.giveUp()
			}
			p.mu.Unlock()
		case <-ctx.Done():
			select {
			case <-w.done: // which may have ended at the same time
				return nil
			default:
				return &WaitingError{URL: w.url}
			}
		}
	}
}

// openBrowser opens the browser in the background. What it sends is why none was opened, in words
// without the token, or nil.
func (p *Page) openBrowser(w *wait) <-chan error {
	asked := make(chan error, 1)
	p.mu.Lock()
	s := p.server
	p.mu.Unlock()
	if p.cfg.Open == nil || s == nil || !s.enter() {
		asked <- errNoBrowser
		return asked
	}
	go func() {
		defer s.goroutines.Done()
		ctx, cancel := context.WithTimeout(s.ctx, p.timing.open)
		defer cancel()
		err := p.cfg.Open(ctx, w.url)
		p.mu.Lock()
		defer p.mu.Unlock()
		w.until = time.Now().Add(p.timing.wait)
		_, token, _ := strings.Cut(w.url, "#mcpProxyToken=")
		token, _, _ = strings.Cut(token, "&")
		if err != nil && strings.Contains(err.Error(), token) {
			err = errors.New(strings.ReplaceAll(err.Error(), token, "…"))
		}
		asked <- err
	}()
	return asked
}

// giveUp ends the waiting without a tab. The token is new, and stays valid for a person who
// opens its URL later.
func (p *Page) giveUp() {
	p.token = newToken()
	url, err := address(p.notebook, p.port, p.token)
	if err == nil {
		err = &NoTabError{URL: url, Refused: p.wait.refused}
	}
	p.finish(nil, err)
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
