package ngrok

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "golang.ngrok.com/ngrok/v2"

	"colabrelay/executor/tunnel"
)

// closeTimeout bounds each step of closing a session: the SDK's Close waits for
// a response from ngrok without its own limit.
const closeTimeout = 2 * time.Second

// session logs in to ngrok, opens one endpoint, serves it and logs out. It
// returns why the session ended. A session is never used again: after ngrok has
// stopped an endpoint, the SDK would open that dead endpoint at every reconnect,
// so the next attempt starts with a new agent.
func (t *Tunnel) session(ctx context.Context, status *tunnel.Status, serve func(net.Listener) error) error {
	// When sdkCtx ends, the SDK closes the session immediately. It outlives ctx
	// so that the session can be closed in order.
	sdkCtx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	events := &events{t: t, status: status, end: end, ended: sdkCtx.Err}
	agent, err := sdk.NewAgent(append([]sdk.AgentOption{sdk.WithEventHandler(events.handle)}, t.options...)...)
	if err != nil {
		return t.classify(err)
	}
	stop := context.AfterFunc(ctx, func() { end(nil) })
	listener, err := agent.Listen(sdkCtx, t.endpoint...) // connecting may take long
	if !stop() {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		end(nil)
		_ = agent.Disconnect() // a session that was never up has nothing to report
		return t.reason(sdkCtx, err)
	}
	events.opened.Store(true)
	status.Up()
	queue := newQueue(listener)
	status.URL(strings.TrimSuffix(listener.URL().String(), "/"))
	served := tunnel.Serve(func() error { return serve(queue) }, ctx.Done(), sdkCtx.Done())
	queue.Close()
	queue.wait(closeTimeout)
	if err := agent.Disconnect(); err != nil {
		t.log.Debug("disconnect from ngrok", "err", t.redact(err))
	}
	end(nil)
	queue.wait(closeTimeout)
	return t.reason(sdkCtx, served.Err())
}

// reason returns the refusal that ended the session, if there is one, or else err.
func (t *Tunnel) reason(sdkCtx context.Context, err error) error {
	var refused *tunnel.Refused
	if errors.As(context.Cause(sdkCtx), &refused) {
		return refused
	}
	return t.classify(err)
}

// classify turns an error of the SDK into a *tunnel.Refused if it holds one of
// ngrok's codes, and otherwise into its redacted text.
func (t *Tunnel) classify(err error) error {
	if refused := refusal(err); refused != nil {
		return refused
	}
	return errors.New(t.redact(err))
}

// redact makes an error of the SDK fit for a log line: ngrok's refusals quote
// the authtoken and span several lines.
func (t *Tunnel) redact(err error) string {
	text := strings.Join(strings.Fields(fmt.Sprint(err)), " ")
	return strings.ReplaceAll(text, t.token, "[authtoken]")
}

// events handles what the SDK reports about one session.
type events struct {
	t      *Tunnel
	status *tunnel.Status
	end    context.CancelCauseFunc // ends the session
	ended  func() error            // not nil once the session has ended
	opened atomic.Bool             // the endpoint has been up
}

// handle receives every lost session and every failed attempt to reconnect it.
// The SDK calls it from within Connect, so it must not block or call the agent.
func (e *events) handle(event sdk.Event) {
	switch event := event.(type) {
	case *sdk.EventAgentConnectSucceeded:
		if e.opened.Load() {
			e.status.Up()
			e.t.log.Info("the ngrok session is up again")
		}
	case *sdk.EventAgentDisconnected:
		if event.Error == nil || e.ended() != nil {
			return // we disconnected
		}
		err := e.t.classify(event.Error)
		if refused := e.status.Refusal(err); refused != nil {
			e.end(refused)
			return
		}
		e.t.log.Warn("the ngrok session is down, reconnecting", "err", err)
	}
}

// queue is the listener that serve gets. It stands between an HTTP server and
// the SDK's listener because the SDK's Close waits until every connection that
// has already arrived has been accepted: an HTTP server that closes its listener
// under its own lock, as Shutdown does, would wait for itself.
type queue struct {
	from  net.Listener
	conns chan net.Conn

	once    sync.Once
	closed  chan struct{} // closed by Close
	dropped chan struct{} // closed when from.Close has returned
	done    chan struct{} // closed when from.Accept has failed; err is set
	err     error
}

func newQueue(from net.Listener) *queue {
	q := &queue{
		from:    from,
		conns:   make(chan net.Conn),
		closed:  make(chan struct{}),
		dropped: make(chan struct{}),
		done:    make(chan struct{}),
	}
	go q.pump()
	return q
}

// pump accepts connections until the SDK's listener fails. After Close it closes
// those that still arrive.
func (q *queue) pump() {
	defer close(q.done)
	for {
		c, err := q.from.Accept()
		if err != nil {
			q.err = err
			return
		}
		select {
		case q.conns <- &tunnel.Conn{Conn: &stream{c}}:
		case <-q.closed:
			c.Close()
		}
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case <-q.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	case <-q.done:
		return nil, q.err
	}
}

// Close implements net.Listener. It returns immediately; wait waits for its
// effect.
func (q *queue) Close() error {
	q.once.Do(func() {
		close(q.closed)
		go func() {
			defer close(q.dropped)
			_ = q.from.Close() // asks ngrok to drop the endpoint; a dead session has none
		}()
	})
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.from.Addr() }

// wait blocks until Close has taken full effect, or until the timeout.
func (q *queue) wait(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, end := range []chan struct{}{q.dropped, q.done} {
		select {
		case <-end:
		case <-timer.C:
			return
		}
	}
}

// stream is one visitor's connection. The SDK gives it the visitor's address as
// its RemoteAddr.
type stream struct{ net.Conn }

// SetWriteDeadline does nothing. A write deadline that expires makes the SDK's
// multiplexer return a frame to its stream while the session's writer still
// uses it, and the next write then corrupts the whole session. ngrok itself
// disconnects a visitor that does not read.
func (*stream) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline sets the read deadline only: see SetWriteDeadline.
func (s *stream) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }
