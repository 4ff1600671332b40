// Package standin is a stand-in of Colab's page for tests: Tab speaks to the relay as a tab
// does, and Kernel is the real ipykernel behind it. What a Tab does without options is what is
// known of the real page (design note colab-page-and-vm.md); each field of Options that is a
// fault says so. It must not be linked into either program. Start reading at Dial.
package standin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"colabrelay/executor/jupyter"
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

// message is a JSON-RPC message. A member without a value is left out: the page sends no nulls.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// serve announces the tools and answers requests until the connection ends.
func (t *Tab) serve() {
	defer t.cancel()
	t.send(message{Method: "notifications/tools/list_changed"})
	if t.options.Silent {
		t.freeze()
	}
	for {
		select {
		case <-t.frozen: // a frozen tab also answers no ping, because nothing reads
			<-t.ctx.Done()
			return
		default:
		}
		_, raw, err := t.conn.Read(t.ctx)
		if err != nil {
			return
		}
		t.record.add("received", string(raw))
		var m message
		if err := json.Unmarshal(raw, &m); err != nil || m.ID == nil || m.Method == "" {
			continue // a notification
		}
		t.group.Go(func() { t.answer(m) })
	}
}

func (t *Tab) answer(m message) {
	out := message{ID: m.ID}
	switch m.Method {
	case "initialize":
		var asked struct {
			Version string `json:"protocolVersion"`
		}
		_ = json.Unmarshal(m.Params, &asked)
		if asked.Version != "2024-11-05" {
			asked.Version = "2025-06-18"
		}
		out.Result = map[string]any{
			"protocolVersion": asked.Version, "capabilities": map[string]any{"tools": map[string]any{"listChanged": true}},
			"serverInfo": map[string]any{"name": "ColabMCP", "version": "1.0.0"},
		}
	case "ping":
		out.Result = map[string]any{}
	case "tools/call":
		out.Result = t.call(m.Params)
	default:
		out.Error = &rpcError{Code: -32601, Message: "Method not found"}
	}
	select {
	case <-t.frozen:
	default:
		t.send(out)
	}
}

// send sends a message as one text frame. If it fails, the reader sees the end of the
// connection.
func (t *Tab) send(m message) {
	m.JSONRPC = "2.0"
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and maps of them
	}
	t.record.add("sent", string(raw))
	_ = t.conn.Write(t.ctx, websocket.MessageText, raw)
}

// KernelOptions choose the environment of a Kernel.
type KernelOptions struct {
	Python string   // with ipykernel: stacks.Old(t).Python
	Dir    string   // its working folder, as /content; its sockets are in a folder of their own
	Env    []string // beside the test's environment
}

// Kernel is a real ipykernel without an executor: the notebook's own kernel.
type Kernel struct {
	client *jupyter.Client
	cmd    *exec.Cmd
	files  string

	mu     sync.Mutex // held while code runs: one goroutine receives
	closed sync.Once
}

// StartKernel starts a kernel and waits until it answers, or until ctx ends. Close ends it.
func StartKernel(ctx context.Context, o KernelOptions) (*Kernel, error) {
	files, err := os.MkdirTemp("", "standin-") // a short path: sockets allow 107 bytes
	if err != nil {
		return nil, fmt.Errorf("starting the notebook's kernel: %w", err)
	}
	k := &Kernel{files: files}
	if err := k.start(ctx, o); err != nil {
		k.Close()
		return nil, fmt.Errorf("starting the notebook's kernel: %w", err)
	}
	return k, nil
}

func (k *Kernel) start(ctx context.Context, o KernelOptions) error {
	info, err := jupyter.NewIPC(k.files)
	if err != nil {
		return err
	}
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	file := filepath.Join(k.files, "connection.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	k.cmd = exec.Command(o.Python, "-m", "ipykernel_launcher", "-f", file, "--HistoryManager.enabled=False")
	k.cmd.Dir = o.Dir
	k.cmd.Env = append(append(os.Environ(), "IPYTHONDIR="+k.files), o.Env...)
	leadGroup(k.cmd)
	if err := k.cmd.Start(); err != nil {
		k.cmd = nil
		return err
	}
	k.client, err = jupyter.Dial(ctx, info, jupyter.Options{})
	return err
}

// Interrupt is a click on the page's stop button: SIGINT goes to the kernel's process group.
func (k *Kernel) Interrupt() error { return interruptGroup(k.cmd) }

// Close ends the kernel and its process group. Programs that were started in sessions of their
// own run on, as on Colab.
func (k *Kernel) Close() {
	k.closed.Do(func() {
		if k.client != nil {
			_ = k.client.Close()
		}
		if k.cmd != nil {
			_ = killGroup(k.cmd)
			_ = k.cmd.Wait()
		}
		_ = os.RemoveAll(k.files)
	})
}

// Execute runs code and returns its outputs in nbformat's form. It fits Options.Execute. If ctx
// ends first, the code runs on and an output says so.
func (k *Kernel) Execute(ctx context.Context, code string) (outputs []map[string]any, count int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var got collected
	if err := k.execute(ctx, code, &got); err != nil {
		got.add(map[string]any{"output_type": "error", "ename": "StandinError", "evalue": err.Error(), "traceback": []string{}})
	}
	return got.outputs, got.count
}

func (k *Kernel) execute(ctx context.Context, code string, got *collected) error {
	id, err := k.client.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: code, StoreHistory: true})
	if err != nil {
		return err
	}
	for !got.replied || !got.idle {
		m, err := k.client.Receive(ctx)
		if err != nil {
			return err
		}
		if m.ParentHeader.MsgID != id {
			continue
		}
		if m.Dropped.Messages > 0 || m.Cut > 0 {
			return errors.New("the cell printed more than the stand-in holds")
		}
		var content map[string]any
		if err := json.Unmarshal(m.Content, &content); err != nil {
			return err
		}
		got.message(m.Header.MsgType, content)
	}
	return nil
}

// Cell is a cell as get_cells shows it.
type Cell struct {
	Type    string           `json:"cell_type"` // code or markdown
	ID      string           `json:"id"`
	Source  []string         `json:"source"` // lines with their line breaks
	Outputs []map[string]any `json:"outputs,omitempty"`
	// Count is nil until the cell has run, and while it runs.
	Count *int `json:"execution_count"`
}

// Notebook is the notebook in a tab. Colab saves it by itself after each change.
type Notebook struct {
	mu    sync.Mutex
	cells []Cell
	saved strings.Builder
	// kernel holds an element while a cell runs: cells run one after the other.
	kernel chan struct{}
}

// NewNotebook returns a notebook with these cells, which get ids if they have none.
func NewNotebook(cells ...Cell) *Notebook {
	n := &Notebook{kernel: make(chan struct{}, 1)}
	n.Edit(func([]Cell) []Cell { return cells })
	return n
}

// NewCell returns a cell with this source.
func NewCell(cellType, source string) Cell {
	return Cell{Type: cellType, ID: rand.Text()[:12], Source: lines(source)}
}

// Edit changes the notebook as a person at the page does.
func (n *Notebook) Edit(change func([]Cell) []Cell) {
	_ = n.change(func() error {
		n.cells = slices.Clone(change(slices.Clone(n.cells)))
		for i := range n.cells {
			if n.cells[i].ID == "" {
				n.cells[i].ID = rand.Text()[:12]
			}
		}
		return nil
	})
}

// Cells returns the cells now.
func (n *Notebook) Cells() []Cell {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cells)
}

// Saved returns every state of the notebook that was saved, one a line.
func (n *Notebook) Saved() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.saved.String()
}

// change applies a change and saves the notebook.
func (n *Notebook) change(apply func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := apply(); err != nil {
		return err
	}
	state, err := json.Marshal(n.cells)
	if err != nil {
		return err
	}
	n.saved.WriteString("saved: " + string(state) + "\n")
	return nil
}

func (n *Notebook) insert(at int, cell Cell) error {
	return n.change(func() error {
		if at < 0 || at > len(n.cells) {
			return fmt.Errorf("cellIndex %d is out of range", at)
		}
		n.cells = slices.Insert(n.cells, at, cell)
		return nil
	})
}

// edit changes the cell with this id.
func (n *Notebook) edit(id string, change func(at int)) error {
	return n.change(func() error {
		at := slices.IndexFunc(n.cells, func(c Cell) bool { return c.ID == id })
		if at < 0 {
			return fmt.Errorf("cell %s not found", id)
		}
		change(at)
		return nil
	})
}

// lines splits a source as nbformat does.
func lines(source string) []string {
	if source == "" {
		return []string{}
	}
	all := strings.SplitAfter(source, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}
