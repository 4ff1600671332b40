// Package api is the executor's HTTP side: it checks who asks, decodes, calls the
// package that does the work, and signs the answer.
//
// It must hold no state of executions, kernel or files, and must not parse or
// remember anything of a request before its MAC was verified. Start reading at
// New: it shows the way of a request, one middleware a file, a handler file per
// group of endpoints. errors.go is the only place that turns errors into answers.
package api

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"colabrelay/executor/execution"
	"colabrelay/executor/files"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/uploads"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// Config is what the API needs from the start.
type Config struct {
	Secret   auth.Secret
	Instance contract.Instance // this process: requests other than GET must name it
	Version  string
	Started  time.Time // from time.Now: the executor's time is counted from here
	// Shutdown begins the executor's end and returns at once.
	Shutdown func()
	// Ending is closed when that end has begun, for whatever cause; nil means never.
	Ending <-chan struct{}
	Log    *slog.Logger
	// ClientAddr is the visitor's address, by which unsigned requests are limited.
	// Nil, or an empty answer, means the peer's.
	ClientAddr func(*http.Request) string
}

// Backend is what the handlers call. Making it takes seconds on a cold disk, as
// the interpreter is looked for; health must answer before.
type Backend struct {
	Queue   *execution.Queue
	Journal *journal.Journal
	Kernel  *kernel.Supervisor
	Prober  *probe.Prober
	Files   *files.Roots
	Digests *files.Digests
	Uploads *uploads.Store
}

// API is the executor's whole HTTP side.
type API struct {
	Config
	Backend  // not to be touched before attached is closed
	attached chan struct{}

	handler    http.Handler
	verifier   *auth.Verifier
	signer     *auth.Signer
	clock      clock
	unsigned   *limiter // requests that proved nothing, per address
	refused    *limiter // requests with a right MAC that were refused all the same
	signed     *keyRate // requests that were verified
	waiting    *slots   // long polls
	bodyLimits bodyLimits
}

// New is an API that answers health and tells who is unauthorized, and has all
// others wait for Attach.
func New(cfg Config) *API {
	a := &API{
		Config:     cfg,
		attached:   make(chan struct{}),
		signer:     auth.NewSigner(cfg.Secret),
		clock:      newClock(cfg.Started),
		unsigned:   newLimiter(maxUnsignedPerMinute),
		refused:    newLimiter(maxRefusedPerMinute),
		signed:     newKeyRate(),
		waiting:    newSlots(maxWaiting),
		bodyLimits: bodyLimits{stall: stallTimeout, total: bodyTimeout},
	}
	a.verifier = auth.NewVerifier(cfg.Secret, cfg.Instance, func() time.Time { return a.clock.now() })
	a.handler = a.authenticated(a.awaitBackend(a.routes()))
	return a
}

// authenticated is the way of a request to the routes. Everything but GET /health is
// authenticated before it is routed, so that an outsider learns nothing, not even
// which paths exist; and all behind authenticate is answered signed. The key's limit
// stands last: only a request that was verified, its body too, counts against it.
func (a *API) authenticated(routes http.Handler) http.Handler {
	inside := chain(routes, a.sign, a.recovery, a.decodeBody, a.limitKey)
	outside := a.openHealth(a.authenticate(inside))
	return chain(outside, a.requestID, a.accessLog, a.recovery, a.boundHeaders, a.boundUnread)
}

// Attach gives the handlers what they work with. It is called once.
func (a *API) Attach(b Backend) {
	a.Backend = b
	close(a.attached)
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// chain wraps h so that the first middleware is the outermost.
func chain(h http.Handler, middlewares ...func(http.Handler) http.Handler) http.Handler {
	for i := len(middlewares) - 1; i >= 0; i-- {
		h = middlewares[i](h)
	}
	return h
}

func (a *API) clientAddr(r *http.Request) string {
	if a.ClientAddr != nil {
		if addr := a.ClientAddr(r); addr != "" {
			return addr
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

const (
	// A peer that sends its headers byte by byte would hold a connection for ever.
	headerTimeout = 5 * time.Second
	// Longer than the gaps between a relay's polls, so that a quick call finds its
	// connection open.
	idleTimeout = 2 * time.Minute
	// bodyTimeout bounds the whole of a body, either way; pace.go bounds each piece. It
	// is not http.Server.ReadTimeout, which goes on running in the handler: net/http
	// then takes a long poll's caller for gone.
	bodyTimeout = 10 * time.Minute
	// From the end of the headers to the end of the answer: reading the body, a long
	// poll's wait or a restart, and a minute for an answer without a pace.
	writeTimeout = bodyTimeout + contract.MaxWait + time.Minute
)

// Server serves h with the timeouts and bounds of the contract; those of connections
// hold for all its listeners together. The caller provides the listeners, and ends it.
// A connection that has carried no verified request lives for headerTimeout. visitor,
// if any, adds to a connection's context who it is from.
func Server(h http.Handler, visitor ConnContext) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    contract.MaxHeaderBytes, // net/http adds 4 KiB; boundHeaders is exact
		// net/http would answer OPTIONS * by itself, to anybody.
		DisableGeneralOptionsHandler: true,
	}
	new(connections).watch(s, visitor)
	return s
}
