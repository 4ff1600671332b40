// Package api is the executor's HTTP server. It authenticates and opens requests, calls the
// packages that do the work, and seals and signs the answers.
//
// It must not keep state of executions, kernel or files, and must not parse or store any
// part of a request before the MAC is verified. Start reading at New, which builds the
// chain of middlewares, and at routes; handlers.go has what they lead to.
// Only errors.go turns errors into answers.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
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
	// Ending is closed when the executor begins to end. Nil means never.
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
	// bodyTimeout limits the transfer of a whole body in either direction; a stall limits
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

// backendWait is how long a request waits while the executor is starting, which takes less
// than a second on a warm machine. A relay repeats refused requests.
const backendWait = 10 * time.Second

// awaitBackend lets requests wait for Attach.
func (a *API) awaitBackend(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.backendReady(r); err != nil {
			a.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *API) backendReady(r *http.Request) error {
	select {
	case <-a.attached:
		return nil
	default:
	}
	done, err := a.wait(r)
	if err != nil {
		return err
	}
	defer done()
	timer := time.NewTimer(backendWait)
	defer timer.Stop()
	select {
	case <-a.attached:
		return nil
	case <-timer.C:
		return kernel.ErrStarting
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// clock is the executor's time: the wall clock at the start plus the time that the
// monotonic clock has measured since. NTP sets a VM's wall clock, by hours if the VM was
// started from an image. If the executor followed it, a step back would refuse every
// request signed with the time reported before, and a step forward and back would accept
// replays, because their nonces were dropped in between. A clock that is wrong from the
// start does no harm, because the relay learns the executor's time and signs with it.
type clock struct {
	wall  time.Time // at the start
	start time.Time // the same moment; only its monotonic reading counts
}

// newClock starts at start, which must come from time.Now: it needs a monotonic reading.
func newClock(start time.Time) clock { return clock{wall: start.Round(0), start: start} }

func (c clock) now() time.Time { return c.wall.Add(time.Since(c.start)) }

// Limits on the number of requests.
const (
	maxUnsignedPerMinute = 60
	// maxRefusedPerMinute limits the answers to captured requests that are sent again. Each
	// relay of the owner is refused once after a restart or with a wrong clock, so a hundred
	// relays stay within the limit.
	maxRefusedPerMinute = 600
	maxWaiting          = 64 // long polls at the same time; see slots
)

// newLimiter counts requests over a sliding minute. It writes no X-RateLimit headers,
// because unsigned answers must not differ.
func newLimiter(perMinute int) *httprate.RateLimiter {
	return httprate.NewRateLimiter(perMinute, time.Minute, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
}

var (
	errUnsignedRate = &refusal{Code: contract.CodeRateLimited, Message: "too many unsigned requests from this address"}
	errRefusedRate  = &refusal{
		Code: contract.CodeRateLimited, Message: "too many refused requests with this key",
		Hint: "Sign with server_time for the executor named in the Executor-Instance header of this answer, and try again in a second.",
	}
	errSignedRate = &refusal{
		Code: contract.CodeRateLimited, Message: fmt.Sprintf("the executor's rate limit was exceeded: %d requests per second for each secret", keyPerSecond),
		Hint: "Wait some seconds, then call again, less often. All relays with this secret share the limit equally.",
	}
	errTooManyWait = &refusal{
		Code: contract.CodeRateLimited, Status: http.StatusServiceUnavailable,
		Message: "too many requests are waiting for output", Hint: "Try again in a second, or without wait_seconds.",
	}
)

// withinUnsigned counts a request without a valid signature and reports whether its
// address is within the limit. If it is not, withinUnsigned answers the request.
func (a *API) withinUnsigned(w http.ResponseWriter, r *http.Request) bool {
	if !a.unsigned.OnLimit(w, r, httprate.CanonicalizeIP(a.clientAddr(r))) {
		return true
	}
	closeUnverified(w, r)
	a.fail(w, r, errUnsignedRate)
	return false
}

// refuse answers a request whose MAC is correct but whose time, executor, nonce or body
// is wrong. Such requests have a limit of their own. If they counted against the key, one
// captured request, sent again and again, would lock the owner out. If they counted
// against the address, one stranger would lock out everybody behind the same tunnel.
//
// Over the limit, the answer no longer gives the cause. It gives what a relay needs to
// sign correctly: the executor's time and its instance. So an attacker who exhausts this
// limit can't keep the owner's requests from being verified. The cause may have been a
// replay, so the answer does not prove that the request had no effect; a relay recognises
// it by server_time.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if a.refused.OnLimit(w, r, "key") {
		err = errRefusedRate
	}
	a.fail(w, r, err)
}

// limitKey limits the requests signed with the key. Only verified requests count,
// because otherwise anybody could exhaust the limit.
func (a *API) limitKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.signed.take(r.Context(), callerOf(r)) {
			a.fail(w, r, errSignedRate)
			return
		}
		callOf(r).admitted = true
		next.ServeHTTP(w, r)
	})
}

// wait takes one of the slots for long polls. The caller must release it by calling done.
func (a *API) wait(r *http.Request) (done func(), err error) {
	done, ok := a.waiting.take(callerOf(r))
	if !ok {
		return nil, errTooManyWait
	}
	return done, nil
}

// handle is an endpoint. It reads what is asked from p. What it returns does that, unless a
// parameter is wrong.
type handle func(p *parameters) action

// action does what was asked. What it returns is sent: bytes and a part of a file as they are,
// anything else as JSON. errors.go translates its error.
type action func(ctx context.Context) (any, error)

// routes are the endpoints for authenticated requests.
func (a *API) routes() http.Handler {
	mux := chi.NewRouter()
	for _, route := range []struct {
		method, path string
		handle       handle
	}{
		{http.MethodGet, contract.PathHealth, a.health},
		{http.MethodGet, contract.PathProbe, a.probe},
		{http.MethodPost, contract.PathExecutions, a.submit},
		{http.MethodGet, contract.PathExecutions, a.listExecutions},
		{http.MethodGet, contract.PathExecution, a.readExecution},
		{http.MethodPost, contract.PathInterrupt, a.interruptExecution},
		{http.MethodPost, contract.PathInput, a.giveInput},
		{http.MethodGet, contract.PathBlob, a.blob},
		{http.MethodPost, contract.PathJobs, a.submitJob},
		{http.MethodGet, contract.PathJob, a.readJob},
		{http.MethodPatch, contract.PathJob, a.patchJob},
		{http.MethodDelete, contract.PathJob, a.deleteJob},
		{http.MethodGet, contract.PathKernel, a.kernelStatus},
		{http.MethodPost, contract.PathKernelRestart, a.restartKernel},
		{http.MethodGet, contract.PathVariables, a.variables},
		{http.MethodGet, contract.PathInspect, a.inspect},
		{http.MethodPost, contract.PathCleanup, a.cleanup},
		{http.MethodGet, contract.PathFiles, a.listFiles},
		{http.MethodGet, contract.PathStat, a.stat},
		{http.MethodGet, contract.PathContent, a.content},
		{http.MethodPost, contract.PathCompare, a.compare},
		{http.MethodPost, contract.PathContents, a.readFiles},
		{http.MethodPost, contract.PathUploadBatch, a.putBatch},
		{http.MethodPost, contract.PathUploads, a.startUpload},
		{http.MethodPut, contract.PathUpload, a.putPart},
		{http.MethodDelete, contract.PathUpload, a.dropUpload},
	} {
		mux.Method(route.method, route.path, a.answer(route.path, route.handle))
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, &refusal{Code: contract.CodeNotFound, Message: "no such path", Hint: "Use a relay and an executor of the same release."})
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, &refusal{
			Code: contract.CodeNotSupported, Status: http.StatusMethodNotAllowed,
			Message: fmt.Sprintf("method %q is not allowed here", r.Method),
			Hint:    "Use a relay and an executor of the same release.",
		})
	})
	return mux
}

// answer turns a handle into an http.Handler. A long poll takes a slot. The access log tells the
// pattern, because outsiders choose the path.
func (a *API) answer(pattern string, h handle) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		callOf(r).route = pattern
		p := &parameters{r: r}
		do := h(p)
		v, err := any(nil), p.err
		if err == nil && p.waits {
			var done func()
			if done, err = a.wait(r); err == nil {
				defer done()
			}
		}
		if err == nil {
			v, err = do(r.Context())
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		switch v := v.(type) {
		case []byte:
			w.Write(v) // into memory
		case filePart:
			answerPart(w, v)
		default:
			a.write(w, r, http.StatusOK, v)
		}
	}
}
