// Package mcp speaks MCP with a host on stdin and stdout: it lists tools, makes calls, and writes
// progress and answers.
//
// It does not know what the tools do (relay/op does). The messages are mcp-go's; its server and
// client must not be imported: they take a quarter of each start and a megabyte. Start reading at
// stdio; respond answers what is no call.
package mcp

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"colabrelay/relay/op"
)

// Tools are what a server serves.
type Tools interface {
	Definitions() []op.Definition
	// Call makes a call and gives send its result, unless ctx ends before the call begins.
	Call(ctx context.Context, q op.Request, send func(op.Result))
}

// Server serves tools to one host.
type Server struct {
	tools Tools
	known map[string]bool // the names of the tools
	about mcp.Implementation
	guide string
}

// New makes a Server. guide tells an agent how to work with the tools.
func New(t Tools, guide, version string) *Server {
	s := &Server{tools: t, known: map[string]bool{}, about: mcp.Implementation{Name: "colab-relay", Version: version}, guide: guide}
	for _, d := range t.Definitions() {
		s.known[d.Name] = true
	}
	return s
}

// Serve speaks MCP until stdin or ctx ends.
func (s *Server) Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	return newStdio(s, stdin, stdout, maxHeld).serve(ctx)
}

// encode returns the JSON of what can always be encoded.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// listsKeep is how long a client may keep the list of tools and the answer to
// server/discover, for its user alone: the toolsets may be others in another folder, or
// after the next start.
const listsKeep = 5 * time.Minute

// maxResultChars asks Claude Code to keep a result of this many characters in the
// conversation. Its own bound would move a page of output into a file.
const maxResultChars = 200_000

// listed returns a tool as hosts see it. Of the hints it has those that differ from what a host
// assumes without them: that a tool changes things, may destroy some, and acts on an open world.
// Every model pays for each. The title is only where old and new hosts look for it. There is no
// output schema: it makes hosts show the model JSON.
func listed(d op.Definition) mcp.Tool {
	hints := mcp.ToolAnnotation{Title: d.Title}
	switch {
	case d.ReadOnly:
		hints.ReadOnlyHint = &d.ReadOnly
	default:
		if !d.Destructive {
			hints.DestructiveHint = &d.Destructive
		}
		if d.Idempotent {
			hints.IdempotentHint = &d.Idempotent
		}
	}
	if !d.OpenWorld {
		hints.OpenWorldHint = &d.OpenWorld
	}
	t := mcp.Tool{Name: d.Name, Description: d.Description, RawInputSchema: d.InputSchema, Annotations: hints}
	if d.Upfront { // for Claude Code
		t.Meta = mcp.NewMetaFromMap(map[string]any{"anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": maxResultChars})
	}
	return t
}

// list returns all tools, sorted by name.
func (s *Server) list() (all []mcp.Tool) {
	byName := map[string]mcp.Tool{}
	for _, d := range s.tools.Definitions() {
		byName[d.Name] = listed(d)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, byName[name])
	}
	return all
}

// check says why a request cannot be answered.
func (s *Server) check(q *request) *mcp.JSONRPCErrorDetails {
	method, p := mcp.MCPMethod(q.Method), &q.Params
	isLegacy := method == mcp.MethodInitialize || method == mcp.MethodPing
	isModern := method == mcp.MethodServerDiscover || method == mcp.MethodSubscriptionsListen
	switch {
	case p.modern() && !mcp.IsValidProtocolVersion(p.Meta.Version):
		unsupported := mcp.UnsupportedProtocolVersionError{Version: p.Meta.Version, Supported: mcp.ValidProtocolVersions}.JSONRPCError()
		return &unsupported.Error
	case p.modern() && p.Meta.Capabilities == nil:
		return refuse(mcp.INVALID_PARAMS, "_meta has no %s", mcp.MetaKeyClientCapabilities)
	case isLegacy && p.modern():
		return refuse(mcp.METHOD_NOT_FOUND, "%q was removed in protocol version %s", method, mcp.ProtocolVersion20260728)
	case isModern && !p.modern():
		return refuse(mcp.METHOD_NOT_FOUND, "%q requires protocol version %s or later", method, mcp.ProtocolVersion20260728)
	case method == mcp.MethodToolsList && p.Cursor != "":
		return refuse(mcp.INVALID_PARAMS, "there is no page %q: the list of tools is one page", p.Cursor)
	case method == mcp.MethodToolsCall && !s.known[p.Name]:
		return refuse(mcp.INVALID_PARAMS, "there is no tool %q", p.Name)
	case isLegacy, isModern, method == mcp.MethodToolsList, method == mcp.MethodToolsCall:
		return nil
	}
	return refuse(mcp.METHOD_NOT_FOUND, "the relay has no method %q", method)
}

// respond answers a request that is no call of a tool.
func (s *Server) respond(q *request) {
	var can mcp.ServerCapabilities
	can.Tools = &struct {
		ListChanged bool `json:"listChanged,omitempty"` // never while a relay runs
	}{}
	switch mcp.MCPMethod(q.Method) {
	case mcp.MethodInitialize:
		q.reply(&mcp.InitializeResult{ProtocolVersion: mcp.NegotiateLegacyVersion(q.Params.Version), Capabilities: can, ServerInfo: s.about, Instructions: s.guide})
	case mcp.MethodServerDiscover:
		q.reply(&mcp.DiscoverResult{SupportedVersions: mcp.ValidProtocolVersions, Capabilities: can, Instructions: s.guide})
	case mcp.MethodToolsList:
		q.reply(&mcp.ListToolsResult{Tools: s.list()})
	case mcp.MethodSubscriptionsListen: // to nothing, as nothing changes
		about := map[string]any{mcp.MetaKeySubscriptionID: q.id}
		q.notify(mcp.MethodNotificationSubscriptionsAcknowledged, map[string]any{"_meta": about, "notifications": struct{}{}})
		q.reply(&mcp.Result{Meta: mcp.NewMetaFromMap(about)})
	default:
		q.reply(&mcp.Result{}) // of a ping
	}
}

// reply answers a request with a result.
func (q *request) reply(result mcp.ResultMetadata) {
	if q.Params.modern() {
		result.SetResultType(mcp.ResultTypeComplete)
		result.EnsureResultMeta().SetServerInfo(q.server.about)
		if list, ok := result.(mcp.CacheHintSetter); ok {
			list.SetCacheHints(listsKeep.Milliseconds(), mcp.CacheScopePrivate)
		}
	}
	q.send(mcp.NewJSONRPCResultResponse(mcp.NewRequestId(q.id), result))
}

// resultOf returns the result of a call: one text, as some frameworks read the first part only, and
// pictures.
func resultOf(r op.Result) *mcp.CallToolResult {
	result := &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(r.Text)}, RawStructuredContent: r.Structured, IsError: r.IsError}
	for _, p := range r.Pictures {
		result.Content = append(result.Content, mcp.NewImageContent(p.Base64(), p.MIMEType))
	}
	return result
}
