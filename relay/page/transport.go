package page

import (
	"context"

	"github.com/coder/websocket"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// These methods make a wire the transport of the SDK's client.
var _ transport.BidirectionalInterface = (*wire)(nil)

// Start does nothing: messages are read once the client has set its handlers, so that it
// misses none.
func (w *wire) Start(context.Context) error { return nil }

// Close asks for the end of the connection.
func (w *wire) Close() error {
	w.fail(ending{websocket.StatusNormalClosure, "closed by the relay"})
	return nil
}

// GetSessionId returns "": a connection is one session.
func (w *wire) GetSessionId() string { return "" }

func (w *wire) SetNotificationHandler(handler func(mcp.JSONRPCNotification)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notifications = handler
}

func (w *wire) SetRequestHandler(handler transport.RequestHandler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = handler
}

// SendNotification tells the tab something.
func (w *wire) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	return w.send(ctx, outgoing{Method: n.Method})
}

// SendRequest sends a request of the SDK's client and returns the answer.
func (w *wire) SendRequest(ctx context.Context, r transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	a, err := w.request(ctx, r.Method, r.Params)
	if err != nil {
		return nil, err
	}
	defer w.release(a)
	response := &transport.JSONRPCResponse{JSONRPC: mcp.JSONRPC_VERSION, ID: r.ID, Result: a.result}
	if a.err != nil {
		response.Error = &mcp.JSONRPCErrorDetails{Code: a.err.Code, Message: a.err.Message}
	}
	return response, nil
}
