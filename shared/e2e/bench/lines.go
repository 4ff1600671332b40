package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"context"

	"colabrelay/shared/e2e/harness"
)

// lineHost is an MCP host that writes and reads lines. The time of a call is the server's,
// from the line that asks to the line that answers: an SDK's client adds a quarter of a
// millisecond.
type lineHost struct {
	in    io.WriteCloser
	out   *bufio.Reader
	calls int
}

// lineHost starts an MCP server and completes the handshake.
func (b *bench) lineHost(c harness.HostConfig) (*lineHost, error) {
	cmd := c.Command()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.atEnd(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	h := &lineHost{in: in, out: bufio.NewReader(out)}
	if err := h.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		return nil, err
	}
	_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return h, err
}

// ask sends a request and waits for its answer, which must be no error.
func (h *lineHost) ask(method, params string) error {
	h.calls++
	id := fmt.Sprintf(`"id":%d,`, h.calls)
	if _, err := fmt.Fprintf(h.in, `{"jsonrpc":"2.0",%s"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
		return err
	}
	for {
		line, err := h.out.ReadBytes('\n')
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", method, err)
		case !bytes.Contains(line, []byte(id)):
			continue // a notification
		case !bytes.Contains(line, []byte(`"result":`)) || bytes.Contains(line, []byte(`"isError":true`)):
			return fmt.Errorf("%s: %.300s", method, line)
		}
		return nil
	}
}

// quickLine calls run_code_quick.
func quickLine(h *lineHost) way {
	return way{name: "tool call", do: func(context.Context) error {
		return h.ask("tools/call", `{"name":"run_code_quick","arguments":{"code":"`+onePlusOne+`"}}`)
	}}
}
