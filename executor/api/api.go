// Package api is the executor's HTTP server. It authenticates and opens requests, calls the
// packages that do the work, and seals and signs the answers.
//
// It must not keep state of executions, kernel or files, and must not parse or store any
// part of a request before the MAC is verified. Start reading at New, which builds the
// chain of middlewares: each has its own file, and so has each group of endpoints.
// Only errors.go turns errors into answers.
package api

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/httprate"

	"colabrelay/executor/audit"
	"colabrelay/executor/execution"
	"colabrelay/executor/files"
	"colabrelay/executor/job"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/uploads"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// Config is what the API needs to answer its first request.
type Config struct {
	Secret   auth.Secret
	Instance contract.Instance // this executor process, which all requests but GET must name
	Version  string
	Started  time.Time // from time.Now; see clock
	// Shutdown starts the shutdown of the executor and returns without waiting for it.
	Shutdown func()
	// Ending is closed when a shutdown starts, whatever its cause. Nil means never.
	Ending <-chan struct{}
	Log    *slog.Logger
	// ClientAddr returns the address by which unsigned requests are limited. If it is nil
	// or returns "", the address of the connection's peer is used.
	ClientAddr func(*http.Request) string
	// Verified is called for each request that a holder of the secret made. Nil is not called.
	Verified func()
	Audit    *audit.Log // nil: no audit log
}

// Backend is what the handlers call. Building it takes seconds on a cold disk, because the
// Python interpreter is searched for. GET /health must be answered before that.
type Backend struct {
	Queue   *execution.Queue
	Journal *journal.Journal
	Jobs    *job.Jobs
	Kernel  *kernel.Supervisor
	Prober  *probe.Prober
	Files   *files.Roots
	Digests *files.Digests
	Uploads *uploads.Store
}

// API is the executor's HTTP handler.
type API struct {
	Config
	Backend  // must not be used before attached is closed
	attached chan struct{}

	handler    http.Handler
	verifier   *auth.Verifier
	clock      clock
	unsigned   *httprate.RateLimiter // requests without a valid signature, per address
	refused    *httprate.RateLimiter // requests with a correct MAC that were refused
	signed     *keyRate              // verified requests
	waiting    *slots                // long polls
	bodyLimits bodyLimits
}

// New makes an API that answers health requests and refuses unauthorized ones. All other
// requests wait for Attach.
func New(cfg Config) *API {
	a := &API{
		Config:     cfg,
		attached:   make(chan struct{}),
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

// authenticated wraps the routes. Everything but GET /health is authenticated before it is
// routed, so that strangers learn nothing, not even which paths exist. All answers behind
// authenticate are signed and sealed. The limit of the key comes last, so that only requests
// count whose query and body opened too.
func (a *API) authenticated(routes http.Handler) http.Handler {
	inside := chain(routes, a.seal, a.recovery, a.openRequest, a.limitKey)
	outside := a.openHealth(a.authenticate(inside))
	return chain(outside, a.startCall, a.accessLog, a.recovery, a.boundUnread, a.closeAfterChunks)
}

// Attach sets the backend. It must be called once.
func (a *API) Attach(b Backend) {
	a.Backend = b
	close(a.attached)
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// chain wraps h. The first middleware is the outermost.
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
	// Without headerTimeout, a peer that sends its headers byte by byte would keep a
	// connection for ever.
	headerTimeout = 5 * time.Second
	// idleTimeout is longer than the gaps between a relay's polls, so that its connections
	// stay open.
	idleTimeout = 2 * time.Minute
	// bodyTimeout limits the transfer of a whole body in either direction; stall.go limits
	// each piece. It is not http.Server.ReadTimeout, which keeps running in the handler:
	// when it expires during a long poll, net/http reports the caller as disconnected.
	bodyTimeout = 10 * time.Minute
	// writeTimeout runs from the end of the headers to the end of the answer. It covers
	// reading the body, a long poll or a restart, and a minute for an unsigned answer.
	writeTimeout = bodyTimeout + contract.MaxWait + time.Minute
)

// Server makes a server of h with the timeouts and limits of the contract. The limits on
// connections apply to all its listeners together. The caller provides the listeners and
// shuts the server down. visitor, if not nil, adds the visitor to a connection's context.
func Server(h http.Handler, visitor ConnContext) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    contract.MaxHeaderBytes - 4<<10, // to which net/http adds 4 KiB
		// Otherwise net/http answers OPTIONS * to anybody.
		DisableGeneralOptionsHandler: true,
	}
	new(connections).watch(s, visitor)
	return s
}
