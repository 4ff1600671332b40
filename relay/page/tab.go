package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/plain"
)

const (
	// protocolVersion is a version of MCP that the page accepts. Without one the SDK first
	// asks for newer versions, which the page does not answer.
	protocolVersion = "2025-06-18"
	// maxToolPages and maxTools bound the page's list of tools; what is beyond is not read.
	maxToolPages = 10
	maxTools     = 200
)

// Tab is a connected tab of Colab with one notebook. Its methods may be called concurrently.
type Tab struct {
	wire     *wire
	client   *client.Client
	timing   timing
	notebook string // the address that it was opened with
	since    time.Time
	stale    atomic.Bool // the page said that its tools changed

	mu    sync.Mutex
	tools []string // names

	runs runs
}

func newTab(w *wire, notebook string) *Tab {
	return &Tab{wire: w, client: client.NewClient(w, client.WithProtocolVersion(protocolVersion)), timing: w.timing, notebook: notebook}
}

// Done is closed when the tab is lost.
func (t *Tab) Done() <-chan struct{} { return t.wire.done }

// Missing returns the names of the tools that the package needs and the page does not have.
// A call that needs one returns *MissingToolError.
func (t *Tab) Missing() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(tools), func(name string) bool { return slices.Contains(t.tools, name) })
}

// serve exchanges messages until the tab is lost or ctx ends. It calls ready when the tools
// are known, and lost at the end.
func (t *Tab) serve(ctx context.Context, version string, ready, lost func()) {
	t.client.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == mcp.MethodNotificationToolsListChanged {
			t.stale.Store(true)
		}
	})
	var handshake sync.WaitGroup
	handshake.Go(func() {
		if err := t.handshake(ctx, version); err != nil {
			t.wire.fail(ending{websocket.StatusProtocolError, "the MCP handshake failed"})
			return
		}
		ready()
	})
	t.wire.run(ctx, lost)
	handshake.Wait()
	t.runs.wait()
}

func (t *Tab) handshake(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, t.timing.handshake)
	defer cancel()
	if err := t.client.Start(ctx); err != nil {
		return err
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "colab-relay", Version: version}
	result, err := t.client.Initialize(ctx, hello)
	if err != nil {
		return err
	}
	if mcp.IsModernProtocol(result.ProtocolVersion) {
		return fmt.Errorf("the page chose version %q of MCP, which was not offered", result.ProtocolVersion)
	}
	return t.listTools(ctx)
}

// listTools asks the page for the names of its tools.
func (t *Tab) listTools(ctx context.Context) error {
	t.stale.Store(false)
	var names []string
	var request mcp.ListToolsRequest
	for range maxToolPages {
		result, err := t.client.ListToolsByPage(ctx, request)
		if err != nil {
			return fmt.Errorf("listing the tools of Colab's page: %w", err)
		}
		for _, tool := range result.Tools[:min(len(result.Tools), maxTools-len(names))] {
			names = append(names, plain.Line(tool.Name))
		}
		if request.Params.Cursor = result.NextCursor; request.Params.Cursor == "" || len(names) == maxTools {
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tools = names
	return nil
}

// has returns *MissingToolError if the page has no tool of this name. The list is read again
// if the page said that it changed.
func (t *Tab) has(ctx context.Context, tool string) error {
	known := func() []string {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.tools
	}
	if slices.Contains(known(), tool) {
		return nil
	}
	if t.stale.Load() {
		if err := t.listTools(ctx); err != nil {
			return t.lostOr(err)
		}
	}
	if names := known(); !slices.Contains(names, tool) {
		return &MissingToolError{Tool: tool, Has: names}
	}
	return nil
}

// lostOr returns ErrTabLost if the tab was lost, otherwise err.
func (t *Tab) lostOr(err error) error {
	select {
	case <-t.wire.done:
		return ErrTabLost
	default:
	}
	if errors.Is(err, ErrTabLost) {
		return ErrTabLost
	}
	return err
}
