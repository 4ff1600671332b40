package tools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxSpare bounds the goroutines that wait for their turn to read.
const maxSpare = 4

// stdio exchanges messages with the host. It handles tools/call itself: the SDK parses a
// call ten times and passes it through three goroutines. The SDK gets all other messages,
// and calls that are not valid.
//
// One goroutine reads at a time. When it has read a call, it passes the turn to another one
// and makes the call, so that no hand-over delays a call.
type stdio struct {
	relay   *Relay
	in      *bufio.Reader
	sdk     *io.PipeWriter // what the SDK reads
	out     *lineWriter
	turn    chan struct{} // passes the turn to read
	spare   chan struct{} // one entry for each goroutine that waits for its turn
	read    chan struct{} // one entry for each call that was read and not answered
	running chan struct{} // one entry for each call in progress
}

func newStdio(r *Relay, stdin io.Reader, sdk *io.PipeWriter) *stdio {
	return &stdio{
		relay: r, in: bufio.NewReaderSize(stdin, 64<<10), sdk: sdk, out: &r.out,
		turn: make(chan struct{}), spare: make(chan struct{}, maxSpare),
		read: make(chan struct{}, maxRead), running: make(chan struct{}, maxCalls),
	}
}

// wait returns when all calls have ended, and lets none begin. It may be called once, when
// the context of work has ended.
func (s *stdio) wait() {
	for range cap(s.read) {
		s.read <- struct{}{}
	}
}

// work reads messages and makes calls until stdin or ctx ends. It starts with the turn to
// read.
func (s *stdio) work(ctx context.Context) {
	for {
		m := s.next(ctx)
		if m == nil {
			return
		}
		select {
		case s.turn <- struct{}{}:
		default:
			go s.work(ctx)
		}
		s.answer(ctx, m)
		<-s.read
		select {
		case s.spare <- struct{}{}:
		default:
			return // enough others wait
		}
		select {
		case <-s.turn:
			<-s.spare
		case <-ctx.Done():
			return
		}
	}
}

// next reads up to the next call. It returns nil when stdin or ctx has ended.
func (s *stdio) next(ctx context.Context) *callRequest {
	for {
		line, err := readLine(s.in)
		if err != nil {
			s.sdk.CloseWithError(err)
			return nil
		}
		s.relay.cancels.inspect(line)
		m := parseCall(line, s.relay.tools)
		if m == nil {
			if _, err := s.sdk.Write(line); err != nil {
				return nil // the SDK has ended
			}
			continue
		}
		select {
		case s.read <- struct{}{}:
			return m
		case <-ctx.Done():
			return nil
		}
	}
}

// readLine returns the next line with its end. The line is valid until the next read.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	line = bytes.Clone(line)
	rest, err := in.ReadBytes('\n')
	return append(line, rest...), err
}

// answer makes a call and writes its answer.
func (s *stdio) answer(ctx context.Context, m *callRequest) {
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-ctx.Done():
		return
	}
	var token any
	if m.Params.Meta.Token != nil {
		token = m.Params.Meta.Token
	}
	a := s.relay.perform(ctx, s.relay.tools[m.Params.Name], m.key(), token, m.Params.Arguments)
	s.out.Write(m.encode(a, s.relay.modern)) // if the host is gone, the end of stdin ends the relay
}

// callRequest is a tools/call request.
type callRequest struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"` // none: it would make the message an answer
	Params  struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			Token json.RawMessage `json:"progressToken"`
			// Since protocol version 2026-07-28, each request has these two.
			Version      string                  `json:"io.modelcontextprotocol/protocolVersion"`
			Capabilities *mcp.ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	} `json:"params"`
}

// parseCall returns the call in line, or nil if it contains none or one that the SDK refuses.
func parseCall(line []byte, tools map[string]tool) *callRequest {
	if !bytes.Contains(line, []byte(`"`+string(mcp.MethodToolsCall)+`"`)) {
		return nil
	}
	var m callRequest
	if json.Unmarshal(line, &m) != nil || m.JSONRPC != mcp.JSONRPC_VERSION || m.Method != string(mcp.MethodToolsCall) ||
		isNull(m.ID) || m.Result != nil {
		return nil
	}
	if meta := m.Params.Meta; m.modern() && (!mcp.IsValidProtocolVersion(meta.Version) || meta.Capabilities == nil) {
		return nil
	}
	if isNull(m.Params.Meta.Token) {
		m.Params.Meta.Token = nil
	}
	if _, known := tools[m.Params.Name]; !known {
		return nil
	}
	return &m
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// modern reports whether the call is of protocol version 2026-07-28 or later.
func (m *callRequest) modern() bool { return mcp.IsModernProtocol(m.Params.Meta.Version) }

func (m *callRequest) key() string { return string(m.ID) }

// modernFields returns the fields that protocol version 2026-07-28 requires of a result.
func modernFields(version string) []byte {
	var meta mcp.Meta
	meta.SetServerInfo(mcp.Implementation{Name: serverName, Version: version})
	return append(append([]byte(`"_meta":`), encode(&meta)...), `,"resultType":"`+string(mcp.ResultTypeComplete)+`",`...)
}

// encode returns the answer as a line.
func (m *callRequest) encode(a answer, modern []byte) []byte {
	var b bytes.Buffer
	b.Grow(256 + len(m.ID) + len(modern) + 2*len(a.structured))
	b.WriteString(`{"jsonrpc":"` + mcp.JSONRPC_VERSION + `","id":`)
	b.Write(m.ID)
	b.WriteString(`,"result":{`)
	if m.modern() {
		b.Write(modern)
	}
	b.WriteString(`"content":`)
	if err := json.NewEncoder(&b).Encode(a.content); err != nil {
		panic(err) // texts and pictures
	}
	b.Truncate(b.Len() - 1) // the line break
	if a.isError {
		b.WriteString(`,"isError":true`)
	}
	b.WriteString(`,"structuredContent":`)
	b.Write(a.structured)
	b.WriteString("}}\n")
	return b.Bytes()
}

// lineWriter lets answers and progress messages share stdout: each Write is one complete
// line.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
