package mcp

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/tools"
)

// maxID bounds the JSON text of a request id and of a progress token, in bytes: the relay
// keeps them during a call, and repeats the token in each progress message.
const maxID = 256

// message is a JSON-RPC message of any kind.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  callParams      `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`

	strange bool // a field has another type, so the SDK answers
}

// callParams is the parameters of a tools/call request, and what the relay reads of others.
type callParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Token json.RawMessage `json:"progressToken"`
		// Since protocol version 2026-07-28, each request has these.
		Version      string                  `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities *mcp.ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
		Client       mcp.Implementation      `json:"io.modelcontextprotocol/clientInfo"`
	} `json:"_meta"`

	RequestID json.RawMessage    `json:"requestId"`  // of notifications/cancelled
	Client    mcp.Implementation `json:"clientInfo"` // of initialize
}

// parse returns the zero message for a line that is none. The SDK answers it with an error.
func parse(line []byte) (m message) {
	err := json.Unmarshal(line, &m)
	if _, strange := errors.AsType[*json.UnmarshalTypeError](err); strange {
		m.strange = true
	} else if err != nil {
		return message{}
	}
	return m
}

func (m *message) isNotification() bool { return m.JSONRPC == mcp.JSONRPC_VERSION && isNull(m.ID) }

// isAnswer reports whether m answers a request of the relay's.
func (m *message) isAnswer() bool {
	return m.Method == "" && !isNull(m.ID) && (m.Result != nil || m.Error != nil)
}

// isCall reports whether m is a call of one of the tools that the SDK would not refuse.
func (m *message) isCall(known map[string]bool) bool {
	meta := &m.Params.Meta
	return !m.strange && m.JSONRPC == mcp.JSONRPC_VERSION && m.Method == string(mcp.MethodToolsCall) && m.Result == nil && known[m.Params.Name] &&
		(!m.Params.modern() || mcp.IsValidProtocolVersion(meta.Version) && meta.Capabilities != nil)
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

// modern reports whether the call is of protocol version 2026-07-28 or later.
func (c *callParams) modern() bool { return mcp.IsModernProtocol(c.Meta.Version) }

// resultOf returns a result as the SDK knows it: one text, as some frameworks read the first part
// only, and pictures.
func resultOf(r tools.Result) *mcp.CallToolResult {
	result := &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(r.Text)}, RawStructuredContent: r.Structured, IsError: r.IsError}
	for _, p := range r.Pictures {
		result.Content = append(result.Content, mcp.NewImageContent(p.Base64(), p.MIMEType))
	}
	return result
}

// answer returns the answer to a call. about is what protocol version 2026-07-28 requires of it.
func (c *callParams) answer(id json.RawMessage, r tools.Result, about *mcp.Meta) mcp.JSONRPCResponse {
	result := resultOf(r)
	if c.modern() {
		result.Meta, result.ResultType = about, mcp.ResultTypeComplete
	}
	return mcp.NewJSONRPCResultResponse(mcp.NewRequestId(id), result)
}
