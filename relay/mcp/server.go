// Package mcp speaks MCP with a host on stdin and stdout: it lists tools, makes calls, and writes
// progress and answers.
//
// It does not know what the tools do (relay/op does). The messages are mcp-go's; its server and
// client must not be imported: they take a quarter of each start and a megabyte. Start reading at
// stdio; respond answers what is no call.
package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sync/semaphore"

	"colabrelay/relay/op"
	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/console"
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

// request is a message of the host's that gets an answer.
type request struct {
	message
	server  *Server
	id      json.RawMessage          // nil if the message has no valid one
	key     string                   // idKey of id, set by inFlight
	refusal *mcp.JSONRPCErrorDetails // why the request is not valid; nil if it is
	cost    int64                    // what it holds of maxHeld
	out     *lineWriter
	arrived time.Time
	done    chan struct{}     // closed when it is answered
	after   []<-chan struct{} // calls that were cancelled before and have not ended

	cancelled atomic.Bool
	stop      context.CancelFunc // ends the work on it
}

// send writes a message that belongs to the request. Nothing may follow for a cancelled request: the
// TypeScript client reports an answer as one to an unknown request.
func (q *request) send(message any) {
	line := append(encode(message), '\n')
	q.out.mu.Lock()
	defer q.out.mu.Unlock()
	if !q.cancelled.Load() {
		_, _ = q.out.w.Write(line) // if the host is gone, the end of stdin ends the relay
	}
}

// notify writes a notification that belongs to the request.
func (q *request) notify(method string, params any) {
	q.send(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": method, "params": params})
}

// progress returns what sends the progress messages of a call; nil if the host wants none.
func (q *request) progress() func(op.Progress) {
	token := validID(q.Params.Meta.Token)
	if token == nil {
		return nil
	}
	return func(p op.Progress) {
		params := map[string]any{"progressToken": token, "progress": p.Value, "message": p.Message}
		if p.Total > 0 {
			params["total"] = p.Total
		}
		q.notify(string(mcp.MethodNotificationProgress), params)
	}
}

func (q *request) isCall() bool { return q.refusal == nil && q.Method == string(mcp.MethodToolsCall) }

// inFlight knows the requests that were read and not answered; stdio bounds their number. A
// cancellation of any other request has no effect: it came too late, or the host is broken.
type inFlight struct {
	mu       sync.Mutex
	requests map[string]*request // by idKey; of two with the same id the newer one
}

func (f *inFlight) add(q *request) {
	if q.id == nil {
		return
	}
	q.key = idKey(q.id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests == nil {
		f.requests = map[string]*request{}
	}
	for _, other := range f.requests {
		if other.cancelled.Load() && other.isCall() && len(q.after) < maxLeaving {
			q.after = append(q.after, other.done)
		}
	}
	f.requests[q.key] = q
}

// Bounds of the cancelled calls whose end a call waits for.
const (
	maxLeaving  = 16
	leavingTime = time.Second
)

// afterCancelled waits until what cancelled calls left is known.
func (q *request) afterCancelled(ctx context.Context) {
	if len(q.after) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, leavingTime)
	defer stop()
	for _, done := range q.after {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

func (f *inFlight) end(q *request) {
	q.stop()
	close(q.done)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests[q.key] == q {
		delete(f.requests, q.key)
	}
}

// cancel drops what follows for the request of that id, and ends the work on it.
func (f *inFlight) cancel(id json.RawMessage) {
	if id = validID(id); id == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.requests[idKey(id)]; q != nil {
		q.cancelled.Store(true)
		q.stop()
	}
}

// Bounds of what a host can make the relay hold, in case it is broken: it may send without
// reading answers, or messages of any length. Nothing is read beyond the first two.
const (
	// maxHeld bounds the bytes of requests that were read and not answered.
	maxHeld = 256 << 20
	// maxRead bounds their number: each counts as requestCost bytes more than it has.
	maxRead     = 10_000
	requestCost = maxHeld / maxRead
	// maxLine bounds one message, in bytes. A longer one is skipped and answered with an
	// error. The longest that the tools can use has the 8 MiB that an executor accepts.
	maxLine = 32 << 20
)

// stdio exchanges messages with the host.
type stdio struct {
	server   *Server
	in       *bufio.Reader
	out      lineWriter
	inFlight inFlight
	held     *semaphore.Weighted // the bytes of requests in flight, up to maxHeld
	maxHeld  int64

	client atomic.Pointer[string] // the host's name, as initialize says
}

// newStdio makes a stdio that holds at most the given bytes of requests.
func newStdio(server *Server, stdin io.Reader, stdout io.Writer, held int64) *stdio {
	return &stdio{
		server: server, in: bufio.NewReaderSize(stdin, 64<<10), out: lineWriter{w: stdout},
		held: semaphore.NewWeighted(held), maxHeld: held,
	}
}

// lastAnswers is how long calls may take after the end of stdin. It ends when a host goes away, which
// ends the relay by force after two seconds, and when a script has written all that it asks.
const lastAnswers = time.Second

// serve returns when stdin or ctx has ended and nothing more will be written. It does not wait for a
// host that reads no answers.
func (s *stdio) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.out.w = console.Until(ctx, s.out.w)
	ended := make(chan error, 1)
	go s.read(ctx, ended)
	var err error
	select {
	case err = <-ended:
		last, stop := context.WithTimeout(ctx, lastAnswers)
		defer stop()
		if s.held.Acquire(last, s.maxHeld) == nil { // all bytes are free, so all requests are answered
			return err
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	if held := s.held.Acquire(context.WithoutCancel(ctx), s.maxHeld); held != nil {
		return held // cannot happen: that context does not end
	}
	return err
}

// read reads a request and answers it, while another goroutine reads the next ones: a call goes on
// where it was read and waits for no other thread. The last of them sends how reading ended.
func (s *stdio) read(ctx context.Context, ended chan<- error) {
	q, err := s.next(ctx)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		ended <- err
		return
	}
	defer s.held.Release(q.cost)
	work, stop := context.WithCancel(ctx)
	q.stop = stop
	s.inFlight.add(q)
	go s.read(ctx, ended)
	s.answer(work, q)
}

// next reads up to the next request.
func (s *stdio) next(ctx context.Context) (*request, error) {
	for {
		line, size, err := bounded.ReadLine(s.in, maxLine)
		if err != nil {
			return nil, err
		}
		m, refusal := parse(line)
		switch {
		case m.isNotification():
			if m.Method == string(mcp.MethodNotificationCancelled) { // no other kind changes anything
				s.inFlight.cancel(m.Params.RequestID)
			}
			continue
		case m.isAnswer():
			continue // the relay asks nothing
		}
		q := &request{message: m, server: s.server, id: validID(m.ID), refusal: refusal, arrived: time.Now(), done: make(chan struct{}), out: &s.out, cost: int64(len(line)) + requestCost}
		switch {
		case size > maxLine: // its id is not known; most clients write it last
			q.refusal = refuse(mcp.INVALID_REQUEST, "the message is longer than %d MiB", maxLine>>20)
		case q.id == nil && !isNull(m.ID):
			q.refusal = refuse(mcp.INVALID_REQUEST, "the request's id is not a string or number of at most %d bytes", maxID)
		case refusal == nil:
			q.refusal = s.server.check(q)
		}
		if m.Method == string(mcp.MethodInitialize) {
			s.initialize(m.Params.Client.Name)
		}
		if err := s.held.Acquire(ctx, q.cost); err != nil {
			return nil, err
		}
		return q, nil
	}
}

// answer answers a request and forgets it.
func (s *stdio) answer(ctx context.Context, q *request) {
	defer s.inFlight.end(q)
	switch {
	case q.refusal != nil:
		q.send(mcp.NewJSONRPCError(mcp.NewRequestId(q.id), q.refusal.Code, q.refusal.Message, q.refusal.Data))
	case q.isCall():
		s.call(ctx, q)
	default:
		s.server.respond(q)
	}
}

// initialize keeps the host's name.
func (s *stdio) initialize(name string) {
	name = strings.Clone(plain.Clip(name, maxClient))
	s.client.Store(&name)
}

// maxClient bounds the name of a host, in characters.
const maxClient = 100

// clientOf returns the name of the host. Since protocol version 2026-07-28, each request has it.
func (s *stdio) clientOf(p *params) string {
	if p.modern() {
		return plain.Clip(p.Meta.Client.Name, maxClient)
	}
	if name := s.client.Load(); name != nil {
		return *name
	}
	return ""
}

// call makes a tool call. A call that ends before it begins gets no answer: it was cancelled, or
// stdin has ended.
func (s *stdio) call(ctx context.Context, q *request) {
	q.afterCancelled(ctx)
	asked := op.Request{
		Tool: q.Params.Name, Arguments: q.Params.Arguments, Host: s.clientOf(&q.Params),
		Arrived: q.arrived, Progress: q.progress(), Cancelled: q.cancelled.Load,
	}
	s.server.tools.Call(ctx, asked, func(r op.Result) { q.reply(resultOf(r)) })
}

// lineWriter lets answers and progress messages share stdout: each Write is one complete line.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}
