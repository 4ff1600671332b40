package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// HostConfig says how an MCP host starts the relay.
type HostConfig struct {
	Binary string
	Args   []string
	Dir    string   // the relay's working directory and home
	Env    []string // COLAB_URL and so on
	// Progress is called with each progress notification's message.
	Progress func(message string)
}

// Command returns the command of the relay.
func (c HostConfig) Command() *exec.Cmd {
	cmd := exec.Command(c.Binary, c.Args...)
	cmd.Dir = c.Dir
	// Tests read the JSON of answers, beside their texts; Env may turn it off.
	cmd.Env = append(cleanEnviron(), "RELAY_STRUCTURED=on", "HOME="+c.Dir, "XDG_CONFIG_HOME="+c.Dir+"/config", "XDG_CACHE_HOME="+c.Dir+"/cache")
	cmd.Env = append(cmd.Env, c.Env...)
	return cmd
}

// Host is an MCP host that runs a relay as its child process, on stdio.
type Host struct {
	Stderr *Output // what the relay logged

	client *client.Client
	cmd    *exec.Cmd
	mu     sync.Mutex
	token  int
}

// StartHost starts a relay and completes the MCP handshake.
func StartHost(ctx context.Context, c HostConfig) (*Host, error) {
	h := &Host{Stderr: &Output{}}
	h.cmd = c.Command()
	command := func(context.Context, string, []string, []string) (*exec.Cmd, error) { return h.cmd, nil }
	stdio := transport.NewStdioWithOptions(c.Binary, nil, c.Args,
		transport.WithCommandFunc(command), transport.WithCommandStderrWriter(h.Stderr))
	h.client = client.NewClient(stdio)
	if err := h.client.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("starting the relay: %w", err)
	}
	if c.Progress != nil {
		h.client.OnNotification(func(n mcp.JSONRPCNotification) {
			if n.Method == "notifications/progress" {
				message, _ := n.Params.AdditionalFields["message"].(string)
				c.Progress(message)
			}
		})
	}
	var hello mcp.InitializeRequest
	hello.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	hello.Params.ClientInfo = mcp.Implementation{Name: "colab-relay e2e", Version: "1"}
	if _, err := h.client.Initialize(ctx, hello); err != nil {
		h.Kill()
		return nil, fmt.Errorf("initialize: %w\n%s", err, h.Stderr)
	}
	return h, nil
}

// Tools returns the answer to tools/list.
func (h *Host) Tools(ctx context.Context) ([]mcp.Tool, error) {
	list, err := h.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	return list.Tools, nil
}

// Answer is a tool's result as a host sees it.
type Answer struct {
	Text    string         // the text contents, joined by line breaks
	Images  []Image        // image contents
	Fields  map[string]any // structuredContent
	IsError bool
	Took    time.Duration
}

// Image is one image content.
type Image struct{ MIMEType, Data string }

// String returns the named field, or "" if it is no string.
func (a Answer) String(field string) string {
	s, _ := a.Fields[field].(string)
	return s
}

// Int returns the named field, or 0 if it is no number.
func (a Answer) Int(field string) int64 {
	f, _ := a.Fields[field].(float64)
	return int64(f)
}

// Error returns the code of the answer's error, or "" if it has none.
func (a Answer) Error() string {
	e, _ := a.Fields["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// Call calls a tool with a progress token.
func (h *Host) Call(ctx context.Context, tool string, args map[string]any) (Answer, error) {
	h.mu.Lock()
	h.token++
	token := h.token
	h.mu.Unlock()
	var request mcp.CallToolRequest
	request.Params.Name = tool
	request.Params.Arguments = args
	request.Params.Meta = &mcp.Meta{ProgressToken: token}
	began := time.Now()
	result, err := h.client.CallTool(ctx, request)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", tool, err)
	}
	a := Answer{IsError: result.IsError, Took: time.Since(began)}
	var texts []string
	for _, content := range result.Content {
		switch c := content.(type) {
		case mcp.TextContent:
			texts = append(texts, c.Text)
		case mcp.ImageContent:
			a.Images = append(a.Images, Image{c.MIMEType, c.Data})
		}
	}
	a.Text = strings.Join(texts, "\n")
	if result.StructuredContent == nil {
		return a, nil
	}
	data, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(data, &a.Fields)
}

// PID returns the relay's process id.
func (h *Host) PID() int { return h.cmd.Process.Pid }

// Kill ends the relay as a crash would and returns when it has ended, and with it its locks.
func (h *Host) Kill() {
	_ = h.cmd.Process.Kill()
	_ = h.Close()
}

// Close ends the relay as a closing host does, by closing its stdin, and returns when it has
// ended. The SDK's client waits for some seconds only.
func (h *Host) Close() error {
	err := h.client.Close()
	_ = Poll(context.Background(), func() (bool, error) {
		return h.cmd.Process.Signal(syscall.Signal(0)) != nil, nil
	})
	return err
}
