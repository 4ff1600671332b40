// Package standin is a stand-in of Colab's page for tests: Tab speaks to the relay as a tab
// does, and Kernel is the real ipykernel behind it. What a Tab does without options is what is
// known of the real page (design note colab-page-and-vm.md); each field of Options that is a
// fault says so. It must not be linked into either program. Start reading at Dial.
package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Options choose what a Tab shows and how it misbehaves. The zero value is a tab with an empty
// notebook, whose person agreed to the connection, and without a VM.
type Options struct {
	// Notebook is the notebook that the tab shows, so that a second Tab can show the same one
	// as after a reload. Nil is a new one, with one empty code cell as on Colab.
	Notebook *Notebook
	// Execute runs a cell's code in the notebook's kernel and returns its outputs in nbformat's
	// form and its execution count. Nil: there is no VM, and run_code_cell answers with an error.
	Execute func(ctx context.Context, code string) (outputs []map[string]any, count int)

	// Declined is a fault: the person closes the dialog, and the tab never connects.
	Declined bool
	// Silent is a fault: the tab connects, announces its tools and then reads nothing.
	Silent bool
	// CallTimeout is a fault: run_code_cell answers with an error after this time, and the cell
	// runs on. On the real page that was seen once, after 90 s.
	CallTimeout time.Duration
	// RunAnyway is a fault: until it is closed the dialog "Run anyway" of a notebook from GitHub
	// is open, and run_code_cell answers without outputs and runs nothing.
	RunAnyway <-chan struct{}
	// NoVM is a fault: run_code_cell answers with this error, as when no GPU is free.
	NoVM string
	// Answer is a fault: if it returns a text, that is the text of a tool's answer.
	Answer func(tool string, arguments json.RawMessage) (text string, answered bool)
}

// ErrDeclined is the error of Dial if the person declines the connection.
var ErrDeclined = errors.New("the person declined the connection")

// Tab is a tab of a browser that shows Colab's page, connected to a relay.
type Tab struct {
	Notebook *Notebook

	options Options
	conn    *websocket.Conn
	record  *record
	ctx     context.Context // of the connection; ends with it
	cancel  context.CancelFunc
	group   sync.WaitGroup
	frozen  chan struct{}
	freeze  func()
}

// maxFrame bounds a message of the relay, in bytes.
const maxFrame = 64 << 20

// Dial opens a URL that the relay gave to a browser, and connects to the relay as the page
// does. Close ends the tab.
func Dial(ctx context.Context, openedURL string, o Options) (*Tab, error) {
	page, err := url.Parse(openedURL)
	if err != nil {
		return nil, fmt.Errorf("reading the URL %q: %v", openedURL, err)
	}
	fragment, err := url.ParseQuery(page.EscapedFragment())
	if err != nil || fragment.Get("mcpProxyToken") == "" || fragment.Get("mcpProxyPort") == "" || strings.Count(openedURL, "#") != 1 {
		return nil, fmt.Errorf("the URL %q has no fragment #mcpProxyToken=…&mcpProxyPort=…: the page does not connect", openedURL)
	}
	if o.Declined {
		return nil, ErrDeclined
	}
	conn, _, err := websocket.Dial(ctx, "ws://localhost:"+fragment.Get("mcpProxyPort")+"/?access_token="+url.QueryEscape(fragment.Get("mcpProxyToken")), &websocket.DialOptions{
		HTTPHeader:   http.Header{"Origin": {page.Scheme + "://" + page.Host}},
		Subprotocols: []string{"mcp"},
	})
	if err != nil {
		return nil, fmt.Errorf("dialing the relay: %w", err)
	}
	if conn.Subprotocol() != "mcp" { // a browser drops such a connection
		conn.CloseNow()
		return nil, errors.New("the relay did not answer with the sub-protocol mcp")
	}
	return start(openedURL, conn, o), nil
}

func start(openedURL string, conn *websocket.Conn, o Options) *Tab {
	if o.Notebook == nil {
		o.Notebook = NewNotebook(NewCell("code", ""))
	}
	conn.SetReadLimit(maxFrame)
	t := &Tab{Notebook: o.Notebook, options: o, conn: conn, record: &record{}, frozen: make(chan struct{})}
	t.freeze = sync.OnceFunc(func() { close(t.frozen) })
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.record.add("opened", openedURL)
	t.group.Go(t.serve)
	return t
}

// Done is closed when the connection has ended.
func (t *Tab) Done() <-chan struct{} { return t.ctx.Done() }

// Close closes the tab as a person does, and returns when its goroutines have ended. A cell
// that runs is cancelled with it.
func (t *Tab) Close() {
	_ = t.conn.Close(websocket.StatusGoingAway, "")
	t.end()
}

// Drop is a fault: the connection ends without a closing frame, as when the computer sleeps.
func (t *Tab) Drop() {
	_ = t.conn.CloseNow()
	t.end()
}

func (t *Tab) end() {
	t.freeze()
	t.cancel()
	t.group.Wait()
}

// Everything returns whatever the tab saw, sent, and saved in its notebook, one entry a line.
func (t *Tab) Everything() string { return t.record.text() + t.Notebook.Saved() }
