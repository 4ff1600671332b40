package api

import (
	"errors"
	"net/http"

	"colabrelay/shared/auth"
)

// authenticate accepts signed requests. A request without a valid MAC counts against its
// address. All such requests get the same answer, which is neither signed nor sealed. A
// request whose MAC is correct but whose time, executor or nonce is wrong gets a sealed answer
// with the cause: it comes from a holder of the key, or is a copy of such a request.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, err := a.verifier.Verify(r)
		callOf(r).exchange = x
		switch {
		case err == nil:
			markVerified(r)
			if a.Verified != nil {
				a.Verified()
			}
			next.ServeHTTP(w, r)
		case !errors.Is(err, auth.ErrUnauthorized):
			refuse := func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, err) }
			a.seal(http.HandlerFunc(refuse)).ServeHTTP(w, r)
		case a.withinUnsigned(w, r):
			closeUnverified(w, r)
			a.fail(w, r, auth.ErrUnauthorized)
		}
	})
}
