package api

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"

	"colabrelay/shared/contract"
)

// answer collects a handler's whole answer, because the signature covers status and body
// and is sent before them. Every answer of the contract is bounded.
type answer struct {
	header http.Header
	status int
	body   *bytes.Buffer // nil until something is written, so that a long poll needs no memory
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.grow(len(p))
	return a.body.Write(p)
}

// grow makes space for n more bytes.
func (a *answer) grow(n int) {
	if a.body == nil {
		a.body = newBuffer(n)
	}
	a.body.Grow(n)
}

func (a *answer) bytes() []byte {
	if a.body == nil {
		return nil
	}
	return a.body.Bytes()
}

// answerSpace returns n bytes in which a handler can prepare its answer. If the handler
// writes them to w first, they are not copied.
func answerSpace(w http.ResponseWriter, n int) []byte {
	c, ok := w.(answerWriter)
	if !ok {
		return make([]byte, n)
	}
	c.grow(n)
	return c.body.AvailableBuffer()[:n]
}

// answerWriter lets http.ResponseController reach the connection behind an answer.
type answerWriter struct {
	*answer
	under http.ResponseWriter
}

func (c answerWriter) Unwrap() http.ResponseWriter { return c.under }

// sign sends the answer of next, compressed if that helps. It signs the bytes as they are
// sent.
func (a *API) sign(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &answer{header: make(http.Header)}
		defer func() { recycle(out.body) }()
		next.ServeHTTP(answerWriter{out, w}, r)
		out.WriteHeader(http.StatusOK)
		body := out.bytes()
		if r.Method == http.MethodHead {
			body = nil // net/http sends no body, and the digest covers what is sent
		}
		if packed := compress(r, body); packed != nil {
			defer recycle(packed)
			body = packed.Bytes()
			out.header.Set("Content-Encoding", "gzip")
		}
		out.header.Set("Content-Length", strconv.Itoa(len(body)))
		out.header.Set("Cache-Control", "no-store, no-transform") // some tunnels compress answers again, which would break the digest
		out.header.Set(contract.HeaderInstance, a.Instance.String())
		if err := a.signer.SignResponse(out.header, r, out.status, body, a.clock.now()); err != nil {
			a.Log.Error("signing an answer", "component", "api", "request_id", requestIDOf(r), "err", err)
			a.fail(w, r, err)
			return
		}
		maps.Copy(w.Header(), out.header)
		a.bodyLimits.send(w, out.status, body)
	})
}
