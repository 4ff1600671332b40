package api

import (
	"context"
	"errors"
	"net/http"

	"colabrelay/shared/auth"
)

// authenticate lets signed requests through. A request without a valid MAC is
// counted against its address and answered alike, unsigned, whatever was wrong
// with it and whatever it asked for. One whose MAC is right but whose clock, executor
// or nonce is wrong is told so, signed: it comes from the key's holder, or is a copy of
// what the holder sent.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.verifier.Verify(r)
		switch {
		case err == nil:
			markVerified(r)
			next.ServeHTTP(w, withCaller(r, caller))
		case !errors.Is(err, auth.ErrUnauthorized):
			a.sign(a.refusing(err)).ServeHTTP(w, r)
		case a.withinUnsigned(w, r):
			closeUnverified(w, r)
			a.fail(w, r, auth.ErrUnauthorized)
		}
	})
}

// refusing answers every request with err, as refuse does.
func (a *API) refusing(err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, err) })
}

type callerKey struct{}

// withCaller notes who signed the request.
func withCaller(r *http.Request, caller auth.Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, caller))
}

// callerOf is who signed the request; zero before that is known.
func callerOf(r *http.Request) auth.Caller {
	caller, _ := r.Context().Value(callerKey{}).(auth.Caller)
	return caller
}
