// Package client speaks the contract to one executor: signs every request, checks
// the signature of every answer before it looks inside, tries again what is safe to
// try again, and says in plain words what is wrong with the way between.
//
// It is the only package that makes HTTP calls (release.go makes the one that goes to
// no executor). It must not log or keep code, output, headers or keys, must not parse
// what an executor has not signed (/health apart), and must not follow its redirects.
//
// Start reading at calls.go (what can be asked), then exchange.go (one try),
// retry.go (which are tried again), job.go (for which executor they are signed) and
// submit.go (why code never runs twice).
package client

import (
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

// Config is what a Client needs.
type Config struct {
	BaseURL   string            // http or https, host and optional port, no path
	Secret    auth.Secret       // shared with the executor
	Log       *slog.Logger      // nil for none; gets no bodies, queries or headers
	Transport http.RoundTripper // nil for the client's own
	// OnAttempt, unless nil, is called after each attempt of a call with its error, nil
	// for a success. An attempt that the caller's context ended is not reported. It may
	// be called concurrently.
	OnAttempt func(err error)
}

// Client speaks to one executor. It is safe for concurrent use.
type Client struct {
	base      url.URL
	signer    *auth.Signer
	transport http.RoundTripper
	log       *slog.Logger
	onAttempt func(err error)
	timeouts  timeouts
	offset    atomic.Int64 // nanoseconds the executor's clock is ahead of ours
	instance  atomic.Pointer[contract.Instance]
	maxAnswer int64         // maxAnswerBytes, but in tests
	asking    chan struct{} // holds one while the first call that needs the instance asks for it
}

// timeouts is how long a try may make no progress.
type timeouts struct {
	answer time.Duration // until the first byte of an answer, beyond what was asked to wait
	stall  time.Duration // between two pieces of a body, either way
	// contact is reachLimit, less in tests.
	reach time.Duration
}

// New makes a Client. It opens no connection.
func New(cfg Config) (*Client, error) {
	base, err := parseBase(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.Secret.IsZero() {
		return nil, errors.New("no secret for the executor")
	}
	c := &Client{
		base:      base,
		signer:    auth.NewSigner(cfg.Secret),
		transport: cfg.Transport,
		log:       cfg.Log,
		onAttempt: cfg.OnAttempt,
		timeouts:  timeouts{answer: 20 * time.Second, stall: 20 * time.Second, reach: reachLimit},
		maxAnswer: maxAnswerBytes,
		asking:    make(chan struct{}, 1),
	}
	if c.transport == nil {
		c.transport = newTransport()
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.log = c.log.With("component", "client")
	return c, nil
}

// parseBase accepts an executor's address. A path is refused: the executor would
// see another path than the one that was signed.
func parseBase(text string) (url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return url.URL{}, errors.New("the executor's URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https":
		return url.URL{}, fmt.Errorf("the executor's URL must begin with http:// or https://, not %q", u.Scheme)
	case u.Hostname() == "":
		return url.URL{}, errors.New("the executor's URL names no host")
	case u.User != nil:
		return url.URL{}, errors.New("the executor's URL must not hold a user name")
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
		return url.URL{}, errors.New("the executor's URL must end after the host")
	}
	return url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// Close lets idle connections go. Calls under way are not touched.
func (c *Client) Close() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// InstanceID is the executor that answered last, empty before the first signed
// answer. It changes when a new VM took over the address.
func (c *Client) InstanceID() string { return c.current().ID }

// current is the executor that answered last, zero before the first signed answer.
func (c *Client) current() contract.Instance {
	if known := c.instance.Load(); known != nil {
		return *known
	}
	return contract.Instance{}
}

// ClockOffset is how far the executor's clock is ahead of this computer's, zero while
// they agree well enough (contract.ClockSkew).
func (c *Client) ClockOffset() time.Duration { return time.Duration(c.offset.Load()) }

// now is the executor's time as far as it is known.
func (c *Client) now() time.Time { return time.Now().Add(c.ClockOffset()) }

// setClock takes over the executor's time.
func (c *Client) setClock(server time.Time) { c.offset.Store(int64(time.Until(server))) }
