// Package page connects the relay with a notebook that is open in Colab's page. The page
// dials a WebSocket on loopback; over it the relay is the MCP client and the tab is the MCP
// server, whose tools edit and run the cells that the person sees.
//
// Everything on loopback is a stranger until it showed the token of the URL that this Page
// made, and even then what it sends is bounded and checked. The package shows nothing to a
// model or terminal: its callers pass a tab's texts through relay/plain. It never logs a
// URL with a token. Start reading at Page.Connect.
package page

import (
	"context"
	"log/slog"
	"time"
)

// Config is what a Page needs.
type Config struct {
	Port    int                                         // of the listener on loopback; 0 takes a free one, which the Page keeps
	Open    func(ctx context.Context, url string) error // opens the person's browser; nil never opens one
	Dir     string                                      // folder of the control file; "" writes none
	Version string                                      // of the relay, told to the tab
	Log     *slog.Logger                                // nil logs nothing
}

// Page is the place where a tab of Colab connects. Its methods may be called concurrently.
type Page struct {
	cfg Config
}

// New returns a Page. It starts nothing: the Page listens from the first Connect on.
func New(cfg Config) *Page { return &Page{cfg: cfg} }

// Close ends the listener and the tab. All goroutines have ended when it returns.
func (p *Page) Close() {}

// Request says which notebook to open.
type Request struct {
	NotebookURL string // "" is Colab's empty notebook
}

// Step is how far a Connect has come, of StepCount.
type Step int

const (
	Listening Step = 1 // the listener is open
	Opened    Step = 2 // the browser was asked to open the notebook
	Connected Step = 3 // the tab is connected and its tools are known
)

// StepCount is the number of steps of a Connect.
const StepCount = 3

// State is what a Page does at the moment.
type State struct {
	Listening      bool      `json:"listening"`
	Port           int       `json:"port,omitempty"`
	Connected      bool      `json:"connected"`
	ConnectedSince time.Time `json:"connected_since,omitzero"`
	Waiting        bool      `json:"waiting"` // a notebook was opened and its tab has not connected yet
}

// Connect returns the connected tab. It starts what is missing, opens the notebook in the
// browser and waits. When ctx ends it returns *WaitingError and the waiting goes on: the
// same call later joins it and opens no second window. It returns *NoTabError when no tab
// connected in time. step, which may be nil, gets each step once.
func (p *Page) Connect(ctx context.Context, r Request, step func(Step)) (*Tab, error) {
	if err := CheckNotebookURL(r.NotebookURL); err != nil {
		return nil, err
	}
	return nil, &NoTabError{}
}

// Tab returns the connected tab, if there is one.
func (p *Page) Tab() (*Tab, bool) { return nil, false }

// State returns what the Page does at the moment.
func (p *Page) State() State { return State{} }
