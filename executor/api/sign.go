package api

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
	"time"

	"colabrelay/shared/contract"
)

// answer gathers a handler's whole answer: the signature covers status and body
// and stands in front of both. Every answer of the contract is bounded.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
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

// conn lets http.ResponseController reach the connection behind an answer.
type conn struct {
	*answer
	under http.ResponseWriter
}

func (c conn) Unwrap() http.ResponseWriter { return c.under }

// sign answers with what next wrote, compressed where that helps, and signed as it
// goes over the wire.
func (a *API) sign(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &answer{header: make(http.Header)}
		next.ServeHTTP(conn{out, w}, r)
		out.WriteHeader(http.StatusOK)
		body := out.body.Bytes()
		if r.Method == http.MethodHead {
			body = nil // net/http sends none, and the digest is over what is sent
		}
		body = compress(out.header, r, body)
		out.header.Set("Content-Length", strconv.Itoa(len(body)))
		out.header.Set("Cache-Control", "no-store, no-transform") // some tunnels recompress, which breaks the digest
		out.header.Set(contract.HeaderInstance, a.InstanceID)
		if err := a.signer.SignResponse(out.header, r, out.status, body, time.Now()); err != nil {
			a.Log.Error("signing an answer", "component", "api", "request_id", requestIDOf(r), "err", err)
			a.fail(w, r, err)
			return
		}
		maps.Copy(w.Header(), out.header)
		w.WriteHeader(out.status)
		w.Write(body) // an error means the caller is gone: nobody is left to tell
	})
}
