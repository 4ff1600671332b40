package api

import (
	"net/http"
	"time"

	"github.com/go-chi/httprate"

	"colabrelay/shared/contract"
)

// Bounds of the contract on how often and how many.
const (
	maxUnsignedPerMinute = 60
	maxSignedPerMinute   = 6000
	maxWaiting           = 64 // connections in a long poll at once
)

// limiter counts requests per key over a sliding minute.
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
	errSignedRate   = &refusal{Code: contract.CodeRateLimited, Message: "too many requests with this key"}
	errTooManyWait  = &refusal{
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
	a.fail(w, r, errUnsignedRate)
	return false
}

// limitKey bounds what the holder of the key may ask. It counts after the MAC was
// verified: before, anybody could use the key's share up.
func (a *API) limitKey(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.signed.take(w, r, "key") {
			a.fail(w, r, errSignedRate)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// wait takes one of the places for long polls; the caller gives it back by done.
func (a *API) wait() (done func(), err error) {
	select {
	case a.waiting <- struct{}{}:
		return func() { <-a.waiting }, nil
	default:
		return nil, errTooManyWait
	}
}
