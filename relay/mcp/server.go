// Package mcp speaks MCP with a host on stdin and stdout: it lists tools, makes calls, and writes
// progress and answers.
//
// It does not know what the tools do (relay/tools does). Start reading at stdio, which handles
// tools/call; the SDK answers all other requests.
package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"colabrelay/relay/tools"
)

// Tools are what a server serves.
type Tools interface {
	Definitions() []tools.Definition
	// Call makes a call and gives send its result, unless ctx ends before the call begins.
	Call(ctx context.Context, q tools.Request, send func(tools.Result))
}

// Server serves tools to one host.
type Server struct {
	tools Tools
	known map[string]bool // the names of the tools
	sdk   *server.MCPServer
	about *mcp.Meta // names the server
	log   *slog.Logger
}

// New makes a Server. guide tells an agent how to work with the tools.
func New(t Tools, guide, version string, log *slog.Logger) *Server {
	s := &Server{tools: t, known: map[string]bool{}, about: &mcp.Meta{}, log: log}
	s.about.SetServerInfo(mcp.Implementation{Name: serverName, Version: version})
	s.sdk = server.NewMCPServer(serverName, version, server.WithInstructions(guide),
		server.WithToolCapabilities(false), // the list never changes while a relay runs
		server.WithCacheHints(listsKeep.Milliseconds(), mcp.CacheScopePrivate))
	for _, d := range t.Definitions() {
		s.known[d.Name] = true
		s.sdk.AddTool(listed(d), s.callBySDK)
	}
	return s
}

// serverName is the relay's name in the protocol.
const serverName = "colab-relay"

// listsKeep is how long a client may keep the list of tools and the answer to
// server/discover, for its user alone: the toolsets may be others in another folder, or
// after the next start.
const listsKeep = 5 * time.Minute

// Serve speaks MCP until stdin or ctx ends.
func (s *Server) Serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	return newStdio(s, stdin, stdout, maxHeld).serve(ctx)
}

// maxResultChars asks Claude Code to keep a result of this many characters in the
// conversation. Its own bound would move a page of output into a file.
const maxResultChars = 200_000

// listed returns a tool as hosts see it. Of the hints it has those that differ from what a host
// assumes without them: that a tool changes things, may destroy some, and acts on an open world.
// Every model pays for each. The title is only where old and new hosts look for it. There is no
// output schema: it makes hosts show the model JSON.
func listed(d tools.Definition) mcp.Tool {
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

// callBySDK makes a call that stdio takes for invalid and the SDK does not.
func (s *Server) callBySDK(ctx context.Context, req mcp.CallToolRequest) (result *mcp.CallToolResult, _ error) {
	q := tools.Request{Tool: req.Params.Name, Arguments: req.Params.RawArguments, Arrived: time.Now(), Cancelled: func() bool { return false }}
	s.tools.Call(ctx, q, func(r tools.Result) { result = resultOf(r) })
	return result, ctx.Err()
}

// answerBySDK lets the SDK answer a request. It writes the SDK's notifications before the
// answer: a client takes an answer to subscriptions/listen that overtakes the
// acknowledgement for the end of the connection.
func (s *Server) answerBySDK(ctx context.Context, q *request) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in the MCP SDK", "err", fmt.Sprint(p), "stack", string(debug.Stack()))
			q.send(mcp.NewJSONRPCError(mcp.NewRequestId(q.id), mcp.INTERNAL_ERROR, "the relay failed to answer", nil))
		}
	}()
	notes := make(notifications, maxNotifications)
	answer := s.sdk.HandleMessage(s.sdk.WithContext(ctx, notes), q.line)
	for range len(notes) {
		q.send(<-notes)
	}
	switch a := answer.(type) {
	case mcp.JSONRPCResponse:
		a.ID = mcp.NewRequestId(q.id)
		q.send(a)
	case mcp.JSONRPCError:
		a.ID = mcp.NewRequestId(q.id)
		q.send(a)
	}
}

// maxNotifications bounds the notifications that belong to one answer of the SDK's. The SDK
// sends one, for subscriptions/listen.
const maxNotifications = 4

// notifications is the SDK's session during one request. It keeps the notifications that
// the SDK sends.
type notifications chan mcp.JSONRPCNotification

func (n notifications) SessionID() string                                   { return "stdio" }
func (n notifications) NotificationChannel() chan<- mcp.JSONRPCNotification { return n }
func (n notifications) Initialize()                                         {}
func (n notifications) Initialized() bool                                   { return true }

// encode returns the JSON of what can always be encoded.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
