package api

import (
	"context"
	"io"
	"net/http"

	"github.com/google/uuid"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
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

// bodyOf is the text of the request's body.
func bodyOf(r *http.Request) []byte { return callOf(r).body }

// partOf is the part of a file in the request's body. It yields only authentic bytes, and
// io.EOF only after the last one; other errors are refusals.
func partOf(r *http.Request) io.Reader { return callOf(r).part }
