package tunnel

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	ngrok "golang.ngrok.com/ngrok/v2"
)

// closeLimit bounds each step of a goodbye: the SDK's Close waits for an answer
// of ngrok without a limit of its own.
const closeLimit = 2 * time.Second

// session is one login to ngrok with one endpoint. It is never opened twice:
// after ngrok stopped an endpoint, the SDK would bind that one again, dead, at
// every reconnect, so the next try starts with a new agent.
type session struct {
	n        *ngrokTunnel
	outer    context.Context
	patience *patience

	// inner is the SDK's: its end closes the session at once. It outlives outer
	// by the goodbye, and its cause is a *Refused when that ended it.
	inner context.Context
	end   context.CancelCauseFunc
	bound atomic.Bool // the endpoint has been up once
}

func (n *ngrokTunnel) openSession(ctx context.Context, p *patience) *session {
	s := &session{n: n, outer: ctx, patience: p}
	s.inner, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

// run connects, serves and says goodbye. It returns why the session ended; a
// *Refused found by the event handler comes back as it is.
func (s *session) run(ready func(url string), serve func(net.Listener) error) error {
	defer s.end(nil)
	l, agent, err := s.listen()
	if err != nil {
		return s.reason(err)
	}
	s.patience.restored()
	queue := newQueue(l)
	ready(strings.TrimSuffix(l.URL().String(), "/"))
	served := make(chan error, 1)
	go func() { served <- serve(queue) }()

	select {
	case err = <-served:
		served <- err
		if errors.Is(err, http.ErrServerClosed) {
			s.awaitEnd()
		}
	case <-s.outer.Done():
	case <-s.inner.Done():
	}
	queue.Close()
	queue.wait(closeLimit)
	if derr := agent.Disconnect(); derr != nil {
		s.n.log.Debug("disconnect from ngrok", "err", s.n.redact(derr))
	}
	s.end(nil)
	queue.wait(closeLimit)
	return s.reason(<-served)
}

// listen connects, which may take long, and binds the endpoint. The agent is
// disconnected already when it returns an error.
func (s *session) listen() (ngrok.EndpointListener, ngrok.Agent, error) {
	agent, err := ngrok.NewAgent(append([]ngrok.AgentOption{ngrok.WithEventHandler(s.onEvent)}, s.n.options...)...)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(s.outer, func() { s.end(nil) })
	l, err := agent.Listen(s.inner, s.n.endpoint...)
	if !stop() {
		err = errors.Join(err, s.outer.Err())
	}
	if err != nil {
		s.end(nil)
		_ = agent.Disconnect() // a session that never stood has nothing to report
		return nil, nil, err
	}
	s.bound.Store(true)
	return l, agent, nil
}

// onEvent hears of every lost session and every failed try to mend it. The SDK
// calls it from within Connect, so it must not block or call the agent.
func (s *session) onEvent(event ngrok.Event) {
	switch e := event.(type) {
	case *ngrok.EventAgentConnectSucceeded:
		if s.bound.Load() {
			s.patience.restored()
			s.n.log.Info("ngrok session is back")
		}
	case *ngrok.EventAgentDisconnected:
		if e.Error == nil || s.inner.Err() != nil {
			return // our own goodbye
		}
		if refused := s.patience.judge(e.Error); refused != nil {
			s.end(refused)
			return
		}
		s.n.log.Warn("ngrok session is down, trying again", "err", s.n.redact(e.Error))
	}
}

// awaitEnd keeps the session for the answers still under way.
func (s *session) awaitEnd() {
	select {
	case <-s.outer.Done():
	case <-s.inner.Done():
	}
}

// reason prefers the refusal that ended the session to the errors it caused.
func (s *session) reason(err error) error {
	var refused *Refused
	if errors.As(context.Cause(s.inner), &refused) {
		return refused
	}
	return err
}
