package ngrok

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
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
