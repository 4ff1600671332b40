package mcp

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/tools"
)

// maxID bounds the JSON text of a request id and of a progress token, in bytes: the relay
// keeps them during a call, and repeats the token in each progress message.
const maxID = 256

// envelope is a JSON-RPC message of any kind.
type envelope struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// parseEnvelope returns the zero envelope for a line that is no message. The SDK answers it
// with an error.
func parseEnvelope(line []byte) envelope {
	var m envelope
	if json.Unmarshal(line, &m) != nil {
		return envelope{}
	}
	return m
}

func (m envelope) isNotification() bool { return m.JSONRPC == mcp.JSONRPC_VERSION && isNull(m.ID) }

// isAnswer reports whether m answers a request of the relay's.
func (m envelope) isAnswer() bool {
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

// idKey returns the text by which valid ids are compared. Two texts of one string are the
// same id ("a" and "\u0061"), two of one number are not (1 and 1.0): no client writes a
// number in two ways.
func idKey(id json.RawMessage) string {
	if !bytes.ContainsRune(id, '\\') {
		return strings.TrimSuffix(string(id), `"`)
	}
	var text string
	_ = json.Unmarshal(id, &text) // it was read from JSON
	return `"` + text
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// callParams is the parameters of a tools/call request.
type callParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Meta      struct {
		Token json.RawMessage `json:"progressToken"`
		// Since protocol version 2026-07-28, each request has these two.
		Version      string                  `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities *mcp.ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
		Client       mcp.Implementation      `json:"io.modelcontextprotocol/clientInfo"`
	} `json:"_meta"`
}

// parseCall returns the call in m, or nil if m is no call or one that the SDK refuses.
func parseCall(m envelope, known map[string]bool) *callParams {
	if m.JSONRPC != mcp.JSONRPC_VERSION || m.Method != string(mcp.MethodToolsCall) || m.Result != nil {
		return nil
	}
	var c callParams
	if json.Unmarshal(m.Params, &c) != nil {
		return nil
	}
	if c.modern() && (!mcp.IsValidProtocolVersion(c.Meta.Version) || c.Meta.Capabilities == nil) {
		return nil
	}
	if !known[c.Name] {
		return nil
	}
	return &c
}

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
