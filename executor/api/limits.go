package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/httprate"

	"colabrelay/shared/contract"
)

// Bounds of the contract on how often and how many.
const (
	maxUnsignedPerMinute = 60
	// maxRefusedPerMinute bounds what somebody gets answered who captured requests of the
	// key's holder and repeats them. The holder's own programs come here once each after a
	// restart or a wrong clock: a hundred relays pass.
	maxRefusedPerMinute = 600
	maxWaiting          = 64 // requests in a long poll at once; as many again for callers that have none
)

// limiter counts requests over a sliding minute.
type limiter struct{ rate *httprate.RateLimiter }

func newLimiter(perMinute int) *limiter {
	// No X-RateLimit headers: unsigned answers must not differ.
	return &limiter{httprate.NewRateLimiter(perMinute, time.Minute,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}))}
}

// take counts one request and reports whether it is within the limit.
func (l *limiter) take(w http.ResponseWriter, r *http.Request, key string) bool {
	return !l.rate.OnLimit(w, r, key)
}

var (
	errUnsignedRate = &refusal{Code: contract.CodeRateLimited, Message: "too many unsigned requests from this address"}
	errRefusedRate  = &refusal{
		Code: contract.CodeRateLimited, Message: "too many requests with this key that were refused",
		Hint: "sign by server_time for the executor that this answer names, and try again in a second",
	}
	errSignedRate = &refusal{
		Code: contract.CodeRateLimited, Message: fmt.Sprintf("the executor's own limit is reached: %d requests a second for one secret, in the long run", keyPerSecond),
		Hint: "wait some seconds, then call again, and less often: all relays with this secret share the limit, in equal parts",
	}
	errTooManyWait = &refusal{
		Code: contract.CodeRateLimited, Status: http.StatusServiceUnavailable,
		Message: "too many requests are waiting for output", Hint: "try again in a second, or ask without wait_seconds",
	}
)

// withinUnsigned counts a request that proved nothing; over the limit it is
// answered here.
func (a *API) withinUnsigned(w http.ResponseWriter, r *http.Request) bool {
	if a.unsigned.take(w, r, httprate.CanonicalizeIP(a.clientAddr(r))) {
		return true
	}
	closeUnverified(w, r)
	a.fail(w, r, errUnsignedRate)
	return false
}

// refuse answers a request whose MAC is right but which was not verified: its time,
// its executor, its nonce or its body is wrong. Such requests have a limit of their
// own. Counted against the key, one captured request, repeated, locked its owner out;
// counted against the address, one stranger would lock out all who come through the
// same tunnel.
//
// Past the limit the cause is no longer told, but what a relay needs to get it right:
// the executor's time, and which executor this is. So whoever keeps this limit used up
// can't keep the owner from being verified. The answer may stand for replayed, so it
// does not prove that nothing was done; server_time marks it.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if !a.refused.take(w, r, "key") {
		err = errRefusedRate
	}
	a.fail(w, r, err)
}

// limitKey bounds what the holder of the key may ask. It counts only what was verified
// as the holder's: before, anybody could use the key's share up.
func (a *API) limitKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.signed.take(r.Context(), callerOf(r)) {
			a.fail(w, r, errSignedRate)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// wait takes one of the places for long polls; the caller gives it back by done.
func (a *API) wait(r *http.Request) (done func(), err error) {
	done, ok := a.waiting.take(callerOf(r))
	if !ok {
		return nil, errTooManyWait
	}
	return done, nil
}
