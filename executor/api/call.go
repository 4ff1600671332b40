package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"colabrelay/executor/audit"
	"colabrelay/executor/files"
	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
	"colabrelay/shared/seal"
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

var (
	errBodyTooLarge = &refusal{
		Code:    contract.CodeTooLarge,
		Message: fmt.Sprintf("request body is over %d MiB", contract.MaxBodyBytes>>20),
		Hint:    "Send less code in one run. Put data into a file.",
	}
	errPartTooLarge = &refusal{
		Code:    contract.CodeTooLarge,
		Message: fmt.Sprintf("part is over %d MiB", contract.MaxFilePart>>20),
		Hint:    "Send the file in smaller parts.",
	}
	errNotOpened = &refusal{
		Code:    contract.CodeBadRequest,
		Message: "the request's query or body cannot be decrypted",
		Hint:    "It was changed on its way from the relay to the executor: try again, or use another network.",
	}
	errCutBody = badRequest("request body ended early")
)

// boundUnread limits the time for a body that no handler reads, because the request is not
// authorized, to headerTimeout. net/http discards such a body before it answers, so a body
// that never arrives would keep the connection for ever.
func (a *API) boundUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout)) // openBody sets its own
		}
		next.ServeHTTP(w, r)
	})
}

// closeAfterChunks closes the connection after a request whose body came in chunks. Relays send
// none. net/http ignores a Content-Length beside them, by which a tunnel may have found another
// end of the request: what a stranger hid behind that end would be answered as if it were the
// owner's next request on this connection.
func (a *API) closeAfterChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// openRequest opens the query and the body of a verified request. The body is read as a
// whole, up to its bound, before anything of it is used. Only the part of a file in a PUT
// is opened while the handler reads it.
func (a *API) openRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := line.OpenQuery(callOf(r).exchange, r); err != nil {
			a.refuse(w, r, errNotOpened)
			return
		}
		body, done := a.readable(w, r)
		defer done()
		if err := openBody(r, body); err != nil {
			a.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// openBody fills body or part of the request's call.
func openBody(r *http.Request, body *requestBody) (err error) {
	c := callOf(r)
	if r.Method != http.MethodPut {
		c.body, err = bounded.ReadAll(line.RequestBody(c.exchange, r, body, contract.MaxBodyBytes), contract.MaxBodyBytes)
		return body.explain(err)
	}
	if r.ContentLength > seal.Size(contract.MaxFilePart) {
		return errPartTooLarge
	}
	c.part = explained{line.RequestBody(c.exchange, r, body, contract.MaxFilePart), body}
	return nil
}

// requestBody is the body of a request as it arrives, sealed. Each piece of it has its own
// deadline.
type requestBody struct {
	from     io.Reader
	conn     *http.ResponseController
	limits   bodyLimits
	end      time.Time
	call     *call // counts the bytes
	tooLarge error // the refusal of a body that is too large
	ended    bool  // by its end or an error
}

func (b *requestBody) Read(p []byte) (int, error) {
	if !b.ended { // else it would stay, and end a long poll
		b.conn.SetReadDeadline(b.limits.next(b.end)) // fails only in tests, where there is no connection
	}
	n, err := b.from.Read(p)
	b.call.received += int64(n)
	b.ended = b.ended || err != nil
	return n, err
}

// readable gives the body of r its bounds. done reads what a handler left, so that a sender
// that is still sending reads the answer. The deadline of a body that stalled stays: net/http
// discards its rest before it sends the answer, and would wait for ever. It removes the
// deadline itself at the end of a body.
func (a *API) readable(w http.ResponseWriter, r *http.Request) (body *requestBody, done func()) {
	most, tooLarge := seal.Size(contract.MaxBodyBytes), errBodyTooLarge
	if r.Method == http.MethodPut {
		most, tooLarge = seal.Size(contract.MaxFilePart), errPartTooLarge
	}
	body = &requestBody{
		from: http.MaxBytesReader(w, r.Body, most), conn: http.NewResponseController(w),
		limits: a.bodyLimits, end: time.Now().Add(a.bodyLimits.total), call: callOf(r), tooLarge: tooLarge,
	}
	if r.ContentLength == 0 {
		body.from, body.ended = http.NoBody, true
	}
	return body, func() {
		if !body.ended && r.ContentLength <= most {
			io.Copy(io.Discard, body)
		}
	}
}

// explain is the refusal for an error of reading or opening the body.
func (b *requestBody) explain(err error) error {
	var over *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &over), errors.Is(err, bounded.ErrTooLong):
		return b.tooLarge
	case line.Unopened(err):
		return errNotOpened
	}
	return errCutBody
}

// explained turns the errors of a part into refusals.
type explained struct {
	part io.Reader
	body *requestBody
}

func (e explained) Read(p []byte) (int, error) {
	n, err := e.part.Read(p)
	if err != nil && err != io.EOF {
		err = e.body.explain(err)
	}
	return n, err
}

// write answers with v as JSON.
func (a *API) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // the answer is never shown as a page, and escaping makes HTML outputs half as long again
	if err := enc.Encode(v); err != nil {
		a.fail(w, r, fmt.Errorf("encoding an answer: %w", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(body.Bytes()) // an error means that the caller has disconnected
}

// maxValues bounds the values in a body. A job whose every step names many others has half as many.
// Without it, 8 MiB of "{}," would become half a gigabyte.
const maxValues = 400_000

var errTooManyValues = &refusal{
	Code:    contract.CodeTooLarge,
	Message: fmt.Sprintf("the request has more than %d values", maxValues),
	Hint:    "Split it into several requests.",
}

// values is about how many values JSON has: how many arrays and objects begin in it, and commas.
func values(body []byte) (n int) {
	for b := range bounded.Structure(body) {
		if b != ']' && b != '}' {
			n++
		}
	}
	return n
}

// decode reads one JSON object into v. Unknown fields are ignored, because a newer relay may
// send them.
func decode(body []byte, v any) error {
	if !utf8.Valid(body) {
		return badRequest("request body is not valid UTF-8") // encoding/json would silently replace the invalid bytes
	}
	if values(body) > maxValues {
		return errTooManyValues
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	err := dec.Decode(v)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		return badRequest("%s: a %s is not valid here", cmp.Or(wrongType.Field, "request body"), wrongType.Value)
	case errors.Is(err, io.EOF):
		return badRequest("request body is empty")
	case err != nil:
		return badRequest("request body is not JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("request body contains more than one JSON value")
	}
	return nil
}

// parameters reads what a request asks. err is the first error.
type parameters struct {
	r     *http.Request
	waits bool // it is a long poll, which takes a slot
	err   error
}

// body reads the request's body as JSON. It releases the body, which would stay in memory while
// the action waits.
func (p *parameters) body(v any) {
	c := callOf(p.r)
	body := c.body
	c.body = nil
	p.fail(decode(body, v))
}

func (p *parameters) text(name string) string { return p.r.URL.Query().Get(name) }

// id is the {id} in the path. If it can't be the id of anything, the error is unknown.
func (p *parameters) id(unknown error) string {
	id := chi.URLParam(p.r, "id")
	if !idPattern.MatchString(id) {
		p.fail(unknown)
	}
	return id
}

// number is a whole number from low to high, or fallback if it is absent.
func (p *parameters) number(name string, fallback, low, high int64) int64 {
	text := p.text(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		p.fail(badRequest("%s: must be a whole number from %d to %d", name, low, high))
		return fallback
	}
	return n
}

// wait is wait_seconds: how long a long poll may wait. The default is 0.
func (p *parameters) wait() time.Duration {
	text := p.text("wait_seconds")
	if text == "" {
		return 0
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s = -1 // refused below
	}
	return p.waitFor(s)
}

// waitFor is a long poll of s seconds.
func (p *parameters) waitFor(s float64) time.Duration {
	wait := p.seconds("wait_seconds", s, contract.MaxWait)
	p.waits = p.waits || wait > 0
	return wait
}

// flag is true or false. The default is false.
func (p *parameters) flag(name string) bool {
	switch p.text(name) {
	case "true":
		return true
	case "", "false":
		return false
	}
	p.fail(badRequest("%s: must be true or false", name))
	return false
}

func (p *parameters) fail(err error) { p.err = cmp.Or(p.err, err) }

// seconds converts s to a duration, which is from 0 to most.
func (p *parameters) seconds(name string, s float64, most time.Duration) time.Duration {
	if !(s >= 0 && s <= most.Seconds()) { // also false for NaN
		p.fail(badRequest("%s: must be a number from 0 to %g", name, most.Seconds()))
		return 0
	}
	return time.Duration(s * float64(time.Second))
}
