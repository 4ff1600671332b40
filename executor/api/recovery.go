package api

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
)

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
