package api

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/auth"
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
