package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

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
		c.body, err = line.OpenBody(c.exchange, r, body)
		return body.explain(err)
	}
	if r.ContentLength > seal.PartSize(contract.MaxFilePart) {
		return errPartTooLarge
	}
	part, err := line.RequestPart(c.exchange, r, body)
	c.part = explained{part, body}
	return body.explain(err)
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
	most, tooLarge := line.MaxSealedBody, errBodyTooLarge
	if r.Method == http.MethodPut {
		most, tooLarge = seal.PartSize(contract.MaxFilePart), errPartTooLarge
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
