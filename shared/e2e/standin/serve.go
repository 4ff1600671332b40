package standin

import (
	"encoding/json"

	"github.com/coder/websocket"
)

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
	case "tools/list":
		out.Result = map[string]any{"tools": Tools()}
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
