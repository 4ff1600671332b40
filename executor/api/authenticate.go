package api

import (
	"context"
	"errors"
	"net/http"

	"colabrelay/shared/auth"
)

// authenticate accepts signed requests. A request without a valid MAC counts against its
// address. All such requests get the same unsigned answer. A request whose MAC is correct
// but whose time, executor or nonce is wrong gets a signed answer with the cause: it comes
// from a holder of the key, or is a copy of such a request.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.verifier.Verify(r)
		switch {
		case err == nil:
			markVerified(r)
			next.ServeHTTP(w, withCaller(r, caller))
		case !errors.Is(err, auth.ErrUnauthorized):
			refuse := func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, err) }
			a.sign(http.HandlerFunc(refuse)).ServeHTTP(w, r)
		case a.withinUnsigned(w, r):
			closeUnverified(w, r)
			a.fail(w, r, auth.ErrUnauthorized)
		}
	})
}

type callerKey struct{}

// withCaller adds the signer of the request to its context.
func withCaller(r *http.Request, caller auth.Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, caller))
}

// callerOf is the signer of the request, or zero if the request is not verified.
func callerOf(r *http.Request) auth.Caller {
	caller, _ := r.Context().Value(callerKey{}).(auth.Caller)
	return caller
}
