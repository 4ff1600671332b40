// Package client calls one executor according to the contract. It seals and signs every
// request, verifies every answer before reading it, retries what is safe to retry, and
// describes in plain words what is wrong with the connection.
//
// Except for relay/vm/colabapi, which calls Google, it is the only package that makes HTTP
// calls (and ReleaseFile, which fetches a release). It must not log or keep code, output, headers or
// keys, must not parse what an executor has not signed (except /health), and must not follow
// redirects of an executor.
//
// Start reading at submit.go (why code never runs twice), then retry.go (which calls are repeated)
// and exchange.go (one attempt). events.go and follow.go read executions; errors.go says what
// answers that no executor signed mean.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// Config configures a Client.
type Config struct {
	BaseURL   string            // http or https, host and optional port, no path
	Secret    auth.Secret       // shared with the executor
	Log       *slog.Logger      // nil for none; never gets bodies, queries or headers
	Transport http.RoundTripper // nil for the default one
	// OnAttempt, unless nil, is called after each attempt of a call with its error, nil
	// for a success. An attempt that the caller's context ended is not reported. It may
	// be called concurrently.
	OnAttempt func(err error)
	// Comeback is the hint if there is no connection to BaseURL; empty for the usual one.
	Comeback string
	// Recorder, unless nil, is told of all executions that this client submits or reads.
	Recorder Recorder
}

// Client calls one executor. It is safe for concurrent use.
type Client struct {
	base      url.URL
	signer    *auth.Signer
	transport ending
	log       *slog.Logger
	onAttempt func(err error)
	comeback  string
	recorder  Recorder // nil for none
	timeouts  timeouts
	limits    limits
	offset    atomic.Int64 // nanoseconds the executor's clock is ahead of ours
	instance  atomic.Pointer[contract.Instance]
	maxAnswer int64         // maxAnswerBytes, except in tests
	asking    chan struct{} // contains one element while a call requests the first instance
}

// timeouts are how long an attempt may make no progress.
type timeouts struct {
	answer time.Duration // until the first byte of an answer, in addition to the requested wait
	stall  time.Duration // between two pieces of a body, in either direction
}

// New returns a Client. It opens no connection.
func New(cfg Config) (*Client, error) {
	if err := auth.CheckURL(cfg.BaseURL); err != nil {
		return nil, fmt.Errorf("the executor's address: %w", err)
	}
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.Secret.IsZero() {
		return nil, errors.New("no secret for the executor")
	}
	c := &Client{
		base:      url.URL{Scheme: base.Scheme, Host: base.Host},
		signer:    auth.NewSigner(cfg.Secret),
		log:       cfg.Log,
		onAttempt: cfg.OnAttempt,
		comeback:  cfg.Comeback,
		recorder:  cfg.Recorder,
		timeouts:  timeouts{answer: 20 * time.Second, stall: 20 * time.Second},
		maxAnswer: maxAnswerBytes,
		asking:    make(chan struct{}, 1),
	}
	c.transport = ending{cfg.Transport}
	if cfg.Transport == nil {
		c.transport = ending{NewTransport()}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.log = c.log.With("component", "client")
	return c, nil
}

// Close closes idle connections. It does not affect calls in progress.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// InstanceID returns the instance_id of the executor that answered last; empty before the
// first signed answer. It changes when a new VM takes over the address.
func (c *Client) InstanceID() string { return c.current().ID }

// current returns the executor that answered last; zero before the first signed answer.
func (c *Client) current() contract.Instance {
	if known := c.instance.Load(); known != nil {
		return *known
	}
	return contract.Instance{}
}

// ClockOffset returns how far the executor's clock is ahead of this computer's; zero while
// they agree within contract.ClockSkew.
func (c *Client) ClockOffset() time.Duration { return time.Duration(c.offset.Load()) }

// now returns the executor's time, as far as it is known.
func (c *Client) now() time.Time { return time.Now().Add(c.ClockOffset()) }

func (c *Client) setClock(server time.Time) { c.offset.Store(int64(time.Until(server))) }

// protocolTime bounds the request for the executor's protocol, which follows a call that has
// failed.
const protocolTime = 5 * time.Second

// byProtocol returns err, or a clearer error if the executor uses another protocol than this
// relay. Such an executor can't check our signature, so it answers as it does to a stranger,
// or signs in a form that we don't know. Only the unsigned /health reveals the protocol;
// nothing else is read from there, and it decides only which words the user reads.
func (c *Client) byProtocol(ctx context.Context, err error) error {
	e, _ := errors.AsType[*Error](err)
	switch kindOf(err) {
	case KindWrongSecret, KindNotExecutor, KindIntercepted, KindWrongProtocol:
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocolTime)
	defer cancel()
	_, unhealthy := c.Health(ctx)
	other, ok := errors.AsType[*Error](unhealthy)
	if !ok || other.Kind != KindWrongProtocol {
		return err
	}
	other.sent, other.Err = e.sent, e.Err
	return other
}

// otherProtocol returns the error for an executor that uses another protocol.
func otherProtocol(theirs int) *Error {
	message := fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the relay on this computer is older", theirs, contract.Protocol)
	hint := "Update the relay on this computer to the executor's release, then start the MCP host again."
	if theirs < contract.Protocol {
		message = fmt.Sprintf("the executor uses protocol %d and this relay protocol %d: the executor on the VM is older", theirs, contract.Protocol)
		hint = "Update the executor to this relay's release (on Colab: run the cell that `colab-relay bootstrap` prints; by SSH: `colab-relay ssh HOST --stop`, then start it again)."
	}
	return problemWithHint(KindWrongProtocol, message, hint, nil)
}
