package api

import (
	"bytes"
	"io"
	"maps"
	"net/http"

	"colabrelay/shared/contract"
	"colabrelay/shared/line"
)

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
	if c, ok := w.(answerWriter); ok {
		c.part = &part
	}
}

// answerWriter lets http.ResponseController reach the connection behind an answer.
type answerWriter struct {
	*answer
	under http.ResponseWriter
}

func (c answerWriter) Unwrap() http.ResponseWriter { return c.under }

// seal signs and seals the answer of next, and sends it.
func (a *API) seal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &answer{header: make(http.Header)}
		next.ServeHTTP(answerWriter{out, w}, r)
		out.WriteHeader(http.StatusOK)
		body, x := io.Reader(http.NoBody), callOf(r).exchange
		switch {
		case out.part != nil:
			defer out.part.Close()
			body = line.SealPart(x, out.header, out.part, out.part.length)
		case r.Method != http.MethodHead: // net/http sends no body to a HEAD
			body = bytes.NewReader(line.SealAnswer(x, out.header, out.body.Bytes()))
		}
		out.header.Set("Cache-Control", "no-store, no-transform") // some tunnels compress answers again, and then they don't open
		out.header.Set(contract.HeaderInstance, a.Instance.String())
		if err := x.SignAnswer(out.header, out.status, a.clock.now()); err != nil {
			a.Log.Error("signing an answer", "component", "api", "request_id", requestIDOf(r), "err", err)
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), out.header)
		if err := a.bodyLimits.send(w, out.status, body); err != nil && out.part != nil {
			a.Log.Info("a part of a file was cut", "component", "api", "request_id", requestIDOf(r), "err", err)
			panic(http.ErrAbortHandler) // the relay sees a cut, not an end
		}
	})
}
