package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
	"colabrelay/shared/seal"
)

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
	io.Reader
	call     *call // counts the bytes
	tooLarge error // the refusal of a body that is too large
	ended    bool  // by its end or an error
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.call.received += int64(n)
	b.ended = b.ended || err != nil
	return n, err
}

// readable gives the body of r its bounds. done reads what a handler left, so that a sender
// that is still sending reads the answer. The deadline of a body that stalled stays: net/http
// discards its rest before it sends the answer, and would wait for ever. It removes the
// deadline itself at the end of a body.
func (a *API) readable(w http.ResponseWriter, r *http.Request) (body *requestBody, done func()) {
	if r.ContentLength == 0 {
		return &requestBody{Reader: http.NoBody, call: callOf(r), tooLarge: errBodyTooLarge}, func() {}
	}
	most, tooLarge := seal.Size(contract.MaxBodyBytes), errBodyTooLarge
	if r.Method == http.MethodPut {
		most, tooLarge = seal.Size(contract.MaxFilePart), errPartTooLarge
	}
	conn := http.NewResponseController(w)
	body = &requestBody{call: callOf(r), tooLarge: tooLarge, Reader: &stallReader{
		body: http.MaxBytesReader(w, r.Body, most),
		conn: conn, limits: a.bodyLimits, end: time.Now().Add(a.bodyLimits.total),
	}}
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
