// Package mcp speaks MCP with a host on stdin and stdout: it lists tools, makes calls, and writes
// progress and answers.
//
// It does not know what the tools do (relay/tools does). The messages are mcp-go's; its server and
// client must not be imported: they take a quarter of each start and a megabyte. Start reading at
// stdio; protocol.go answers what is no call.
package mcp

import (
	"context"
	"encoding/json"
	"io"

	"github.com/mark3labs/mcp-go/mcp"

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
