package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coder/websocket"
	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/plain"
	"colabrelay/shared/keep"
)

const (
	// protocolVersion is a version of MCP that the page accepts. It does not answer newer ones.
	protocolVersion = "2025-06-18"
	// maxToolPages and maxTools bound the page's list of tools; what is beyond is not read.
	maxToolPages = 10
	maxTools     = 200
)

// Tab is a connected tab of Colab with one notebook. Its methods may be called concurrently.
type Tab struct {
	wire     *wire
	timing   timing
	notebook string // the address that it was opened with

	mu    sync.Mutex
	tools []string // names

	runs *keep.Flights[Result] // of cells, by id
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
	t.runs.Close(ErrTabLost)
}

func (t *Tab) handshake(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, t.timing.handshake)
	defer cancel()
	var chosen struct {
		Version string `json:"protocolVersion"`
	}
	hello := map[string]any{"protocolVersion": protocolVersion, "clientInfo": mcp.Implementation{Name: "colab-relay", Version: version}, "capabilities": struct{}{}}
	if err := t.wire.ask(ctx, mcp.MethodInitialize, hello, &chosen); err != nil {
		return err
	}
	if !mcp.IsValidProtocolVersion(chosen.Version) || mcp.IsModernProtocol(chosen.Version) {
		return fmt.Errorf("the page chose version %q of MCP, which was not offered", chosen.Version)
	}
	if err := t.wire.send(ctx, outgoing{Method: string(mcp.MethodNotificationInitialized)}); err != nil {
		return err
	}
	return t.listTools(ctx)
}

// listTools asks the page for the names of its tools.
func (t *Tab) listTools(ctx context.Context) error {
	t.wire.stale.Store(false)
	var names []string
	params := map[string]any{}
	for range maxToolPages {
		var page struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
			Next string `json:"nextCursor"`
		}
		if err := t.wire.ask(ctx, mcp.MethodToolsList, params, &page); err != nil {
			return fmt.Errorf("listing the tools of Colab's page: %w", err)
		}
		for _, tool := range page.Tools[:min(len(page.Tools), maxTools-len(names))] {
			names = append(names, plain.Line(tool.Name))
		}
		if params["cursor"] = page.Next; page.Next == "" || len(names) == maxTools {
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
	if t.wire.stale.Load() {
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
