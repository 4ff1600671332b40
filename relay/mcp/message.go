package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxID bounds the JSON text of a request id and of a progress token, in bytes: the relay
// keeps them during a call, and repeats the token in each progress message.
const maxID = 256

// message is a JSON-RPC message of any kind.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  params          `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// params is what the relay reads of a message's parameters.
type params struct {
	Meta struct {
		Token json.RawMessage `json:"progressToken"`
		// Since protocol version 2026-07-28, each request has these.
		Version      string                     `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities map[string]json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		Client       client                     `json:"io.modelcontextprotocol/clientInfo"`
	} `json:"_meta"`

	Name      string          `json:"name"` // of tools/call
	Arguments json.RawMessage `json:"arguments"`
	Cursor    string          `json:"cursor"`          // of tools/list
	RequestID json.RawMessage `json:"requestId"`       // of notifications/cancelled
	Version   string          `json:"protocolVersion"` // of initialize
	Client    client          `json:"clientInfo"`
}

type client struct {
	Name string `json:"name"`
}

// modern reports whether the request is of protocol version 2026-07-28 or later.
func (p *params) modern() bool { return mcp.IsModernProtocol(p.Meta.Version) }

// parse reads a line. A refusal says why it is no valid message.
func parse(line []byte) (m message, refusal *mcp.JSONRPCErrorDetails) {
	err := json.Unmarshal(line, &m)
	wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case isType && wrong.Field != "":
		return m, refuse(mcp.INVALID_REQUEST, "%q has the wrong type: %s", wrong.Field, wrong.Value)
	case err != nil:
		return message{}, refuse(mcp.PARSE_ERROR, "the line is no JSON-RPC message")
	case m.JSONRPC != mcp.JSONRPC_VERSION:
		return m, refuse(mcp.INVALID_REQUEST, "%q is not %q", "jsonrpc", mcp.JSONRPC_VERSION)
	}
	return m, nil
}

func refuse(code int, format string, args ...any) *mcp.JSONRPCErrorDetails {
	return &mcp.JSONRPCErrorDetails{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (m *message) isNotification() bool { return m.JSONRPC == mcp.JSONRPC_VERSION && isNull(m.ID) }

// isAnswer reports whether m answers a request of the relay's.
func (m *message) isAnswer() bool {
	return m.Method == "" && !isNull(m.ID) && (m.Result != nil || m.Error != nil)
}

// validID returns an id or a progress token, or nil if it is not a string or a number of at
// most maxID bytes.
func validID(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || len(raw) > maxID || !utf8.Valid(raw) {
		return nil
	}
	if c := raw[0]; c != '"' && c != '-' && (c < '0' || c > '9') {
		return nil
	}
	return raw
}

// idKey returns the text by which valid ids are compared; empty for none. Two texts of one string
// are the same id ("a" and "\u0061"), two of one number are not (1 and 1.0): no client writes a
// number in two ways.
func idKey(id json.RawMessage) string {
	var text string
	if json.Unmarshal(id, &text) == nil {
		return `"` + text
	}
	return string(id)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
