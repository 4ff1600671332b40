package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/httprate"

	"colabrelay/shared/contract"
)

// Limits on the number of requests.
const (
	maxUnsignedPerMinute = 60
	// maxRefusedPerMinute limits the answers to captured requests that are sent again. Each
	// relay of the owner is refused once after a restart or with a wrong clock, so a hundred
	// relays stay within the limit.
	maxRefusedPerMinute = 600
	maxWaiting          = 64 // long polls at the same time; see slots
)

// newLimiter counts requests over a sliding minute. It writes no X-RateLimit headers,
// because unsigned answers must not differ.
func newLimiter(perMinute int) *httprate.RateLimiter {
	return httprate.NewRateLimiter(perMinute, time.Minute, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
}

var (
	errUnsignedRate = &refusal{Code: contract.CodeRateLimited, Message: "too many unsigned requests from this address"}
	errRefusedRate  = &refusal{
		Code: contract.CodeRateLimited, Message: "too many refused requests with this key",
		Hint: "Sign with server_time for the executor named in the Executor-Instance header of this answer, and try again in a second.",
	}
	errSignedRate = &refusal{
		Code: contract.CodeRateLimited, Message: fmt.Sprintf("the executor's rate limit was exceeded: %d requests per second for each secret", keyPerSecond),
		Hint: "Wait some seconds, then call again, less often. All relays with this secret share the limit equally.",
	}
	errTooManyWait = &refusal{
		Code: contract.CodeRateLimited, Status: http.StatusServiceUnavailable,
		Message: "too many requests are waiting for output", Hint: "Try again in a second, or without wait_seconds.",
	}
)

// withinUnsigned counts a request without a valid signature and reports whether its
// address is within the limit. If it is not, withinUnsigned answers the request.
func (a *API) withinUnsigned(w http.ResponseWriter, r *http.Request) bool {
	if !a.unsigned.OnLimit(w, r, httprate.CanonicalizeIP(a.clientAddr(r))) {
		return true
	}
	closeUnverified(w, r)
	a.fail(w, r, errUnsignedRate)
	return false
}

// refuse answers a request whose MAC is correct but whose time, executor, nonce or body
// is wrong. Such requests have a limit of their own. If they counted against the key, one
// captured request, sent again and again, would lock the owner out. If they counted
// against the address, one stranger would lock out everybody behind the same tunnel.
//
// Over the limit, the answer no longer gives the cause. It gives what a relay needs to
// sign correctly: the executor's time and its instance. So an attacker who exhausts this
// limit can't keep the owner's requests from being verified. The cause may have been a
// replay, so the answer does not prove that the request had no effect; a relay recognises
// it by server_time.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if a.refused.OnLimit(w, r, "key") {
		err = errRefusedRate
	}
	a.fail(w, r, err)
}

// limitKey limits the requests signed with the key. Only verified requests count,
// because otherwise anybody could exhaust the limit.
func (a *API) limitKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.signed.take(r.Context(), callerOf(r)) {
			a.fail(w, r, errSignedRate)
			return
		}
		callOf(r).admitted = true
		next.ServeHTTP(w, r)
	})
}

// wait takes one of the slots for long polls. The caller must release it by calling done.
func (a *API) wait(r *http.Request) (done func(), err error) {
	done, ok := a.waiting.take(callerOf(r))
	if !ok {
		return nil, errTooManyWait
	}
	return done, nil
}
