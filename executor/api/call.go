package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"colabrelay/executor/audit"
	"colabrelay/executor/files"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
)

// call is what the middlewares know about one request. Its fields are filled as the request
// passes through them. It is the only value that they add to the request's context.
type call struct {
	id       string         // for logs and error bodies
	route    string         // the pattern that matched, for the access log
	exchange *auth.Exchange // nil until the request is verified
	body     []byte         // its text; nil for a part of a file
	part     io.Reader      // the part of a file in a PUT; see openBody

	// For the audit log.
	admitted  bool          // the request reached the routes
	received  int64         // bytes of the sealed body
	execution string        // id of the one that it submitted
	failure   contract.Code // of the answer
}

type callKey struct{}

// callOf is the call of a request. Outside the chain of middlewares it is empty.
func callOf(r *http.Request) *call {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		return c
	}
	return new(call)
}

// startCall gives the request its call, with an id. The caller's own X-Request-Id is ignored
// because it is not signed.
func (a *API) startCall(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{id: uuid.NewString()}
		w.Header().Set(contract.HeaderRequestID, c.id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	})
}

func requestIDOf(r *http.Request) string { return callOf(r).id }

// callerOf is the signer of the request, or zero if the request is not verified.
func callerOf(r *http.Request) auth.Caller {
	if x := callOf(r).exchange; x != nil {
		return x.Caller()
	}
	return auth.Caller{}
}

// partOf is the part of a file in the request's body. It yields only authentic bytes, and
// io.EOF only after the last one; other errors are refusals.
func partOf(r *http.Request) io.Reader { return callOf(r).part }

// authenticate accepts signed requests. A request without a valid MAC counts against its
// address. All such requests get the same answer, which is neither signed nor sealed. A
// request whose MAC is correct but whose time, executor or nonce is wrong gets a sealed answer
// with the cause: it comes from a holder of the key, or is a copy of such a request.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, err := a.verifier.Verify(r)
		callOf(r).exchange = x
		switch {
		case err == nil:
			markVerified(r)
			if a.Verified != nil {
				a.Verified()
			}
			next.ServeHTTP(w, r)
		case !errors.Is(err, auth.ErrUnauthorized):
			refuse := func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, err) }
			a.seal(http.HandlerFunc(refuse)).ServeHTTP(w, r)
		case a.withinUnsigned(w, r):
			closeUnverified(w, r)
			a.fail(w, r, auth.ErrUnauthorized)
		}
	})
}

// answer collects a handler's answer, because it is compressed, padded and sealed as a whole.
// A part of a file is the exception: it is sealed while it is sent.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	part   *filePart
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// filePart is a part of a file that a handler answers with.
type filePart struct {
	io.ReadCloser
	length int64 // bytes that it yields, or fewer and an error
}

// answerPart answers with a part of a file, which is read while it is sent. If it fails, the
// connection is closed: the caller uses what arrived, and the next request has the cause.
func answerPart(w http.ResponseWriter, part filePart) {
	w.(answerWriter).part = &part
}

// answerWriter lets http.ResponseController reach the connection behind an answer.
type answerWriter struct {
	*answer
	under http.ResponseWriter
}

func (c answerWriter) Unwrap() http.ResponseWriter { return c.under }

// seal signs the head and returns the sealed body.
func (a *answer) seal(x *auth.Exchange, method string, created time.Time) (io.Reader, error) {
	switch {
	case a.part != nil:
		return line.SealPart(x, a.header, a.status, created, a.part, a.part.length)
	case method == http.MethodHead: // net/http sends no body to a HEAD
		return http.NoBody, x.SignAnswer(a.header, a.status, created)
	}
	sealed, err := line.SealAnswer(x, a.header, a.status, created, a.body.Bytes())
	return bytes.NewReader(sealed), err
}

// seal signs and seals the answer of next, and sends it.
func (a *API) seal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &answer{header: make(http.Header)}
		next.ServeHTTP(answerWriter{out, w}, r)
		out.WriteHeader(http.StatusOK)
		if out.part != nil {
			defer out.part.Close()
		}
		out.header.Set("Cache-Control", "no-store, no-transform") // some tunnels compress answers again, and then they don't open
		out.header.Set(contract.HeaderInstance, a.Instance.String())
		body, err := out.seal(callOf(r).exchange, r.Method, a.clock.now())
		if err != nil {
			a.Log.Error("signing an answer", "component", "api", "request_id", requestIDOf(r), "err", err)
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), out.header)
		if err := a.bodyLimits.send(w, out.status, body); err != nil && out.part != nil {
			a.Log.Info("a part of a file was cut", "component", "api", "request_id", requestIDOf(r), "changed", errors.Is(err, files.ErrChanged))
			panic(http.ErrAbortHandler) // the relay sees a cut, not an end
		}
	})
}

// accessLog logs one line for every request. It omits query, headers and bodies, which may
// contain what a user typed.
func (a *API) accessLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		c := callOf(r)
		defer func() {
			a.Log.LogAttrs(r.Context(), slog.LevelInfo, "request",
				slog.String("component", "api"),
				slog.String("request_id", c.id),
				slog.String("method", r.Method),
				slog.String("route", c.route),
				slog.Int("status", ww.Status()),
				slog.Int("bytes", ww.BytesWritten()),
				slog.Duration("dur", time.Since(began)),
			)
			if c.exchange != nil {
				a.auditRequest(r, ww, time.Since(began))
			}
		}()
		next.ServeHTTP(ww, r)
	})
}

// auditRequest records a request whose MAC was correct, after its answer.
func (a *API) auditRequest(r *http.Request, w middleware.WrapResponseWriter, took time.Duration) {
	c := callOf(r)
	a.Audit.Request(audit.Request{
		Source: a.sourceOf(r), Method: r.Method, Path: r.URL.EscapedPath(),
		ExecutionID: c.execution, Status: w.Status(), Error: c.failure,
		Received: c.received, Sent: int64(w.BytesWritten()), DurationMS: new(took.Milliseconds()), Admitted: c.admitted,
	})
}

// submitAudited queues an execution. One that is new is recorded before its code can run.
func (a *API) submitAudited(r *http.Request, s contract.Submit) (id string, err error) {
	if id, err = a.Journal.Submitted(s); id == "" && err == nil {
		a.Audit.Submitted(a.sourceOf(r), s)
	}
	id, err = a.Queue.Submit(callerOf(r).String(), s)
	if err != nil {
		a.Audit.Refused(s.RequestID)
	}
	callOf(r).execution = id
	return id, err
}

func (a *API) sourceOf(r *http.Request) audit.Source {
	return audit.Source{RequestID: requestIDOf(r), Caller: callerOf(r).String(), Address: a.clientAddr(r)}
}

var errPanic = errors.New("handler panicked")

// recovery turns a panic into an internal error. It is in the chain twice: inside seal, so
// that the relay gets a sealed answer, and outside everything else.
func (a *API) recovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler {
				panic(v) // net/http closes the connection
			}
			a.Log.Error("panic", "component", "api", "request_id", requestIDOf(r), "err", fmt.Sprint(v), "stack", string(debug.Stack()))
			a.fail(w, r, errPanic)
		}()
		next.ServeHTTP(w, r)
	})
}
