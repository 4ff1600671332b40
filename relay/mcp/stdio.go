package mcp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/sync/semaphore"

	"colabrelay/relay/op"
	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/console"
)

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
	go func() { ended <- s.read(ctx) }()
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

// read reads until stdin or ctx ends, and answers each request in its own goroutine.
func (s *stdio) read(ctx context.Context) error {
	for {
		q, err := s.next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		work, stop := context.WithCancel(ctx)
		q.stop = stop
		s.inFlight.add(q)
		go func() {
			defer s.held.Release(q.cost)
			s.answer(work, q)
		}()
	}
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
