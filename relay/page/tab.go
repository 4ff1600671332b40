package page

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/coder/websocket"
	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/shared/keep"
)

// protocolVersion is a version of MCP that the page accepts. It does not answer newer ones.
const protocolVersion = "2025-06-18"

// Tab is a connected tab of Colab with one notebook. Its methods may be called concurrently.
type Tab struct {
	wire     *wire
	timing   timing
	notebook string                // the address that it was opened with
	runs     *keep.Flights[Result] // of cells, by id
}

// Done is closed when the tab is lost.
func (t *Tab) Done() <-chan struct{} { return t.wire.done }

// serve exchanges messages until the tab is lost or ctx ends. It calls ready after the
// handshake, and lost at the end.
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
	err := t.wire.request(ctx, string(mcp.MethodInitialize), hello, func(m *message) error { return json.Unmarshal(m.Result, &chosen) })
	if err != nil {
		return err
	}
	if !mcp.IsValidProtocolVersion(chosen.Version) || mcp.IsModernProtocol(chosen.Version) {
		return fmt.Errorf("the page chose version %q of MCP, which was not offered", chosen.Version)
	}
	return t.wire.send(ctx, outgoing{Method: string(mcp.MethodNotificationInitialized)})
}
