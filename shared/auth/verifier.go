package auth

import (
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// Verifier checks requests on the executor's side. It is safe for concurrent use.
type Verifier struct {
	secret   Secret
	instance contract.Instance
	now      func() time.Time
	window   *window
}

// NewVerifier checks requests against secret, which must not be zero. instance is
// what requests other than GET must name. now is the clock, time.Now where nil.
//
// The memory of nonces begins here. A request that was signed earlier is refused all
// the same when it changes something, since it names an earlier start.
func NewVerifier(secret Secret, instance contract.Instance, now func() time.Time) *Verifier {
	if secret.IsZero() || instance.IsZero() {
		panic("auth: verifier without a secret or an instance")
	}
	if now == nil {
		now = time.Now
	}
	return &Verifier{secret: secret, instance: instance, now: now, window: newWindow()}
}

// Verify checks all of req but its body, in this order: sizes and form of the
// signature's headers, key_id and MAC (ErrUnauthorized for each of these), time
// (ErrClockSkew), instance and start unless it is a GET (ErrNewInstance, ErrNewStart),
// nonce (ErrReplayed, ErrTooManyNonces). Only the nonce of a request that passes is
// remembered. What remains is VerifyDigest, once the body is read. After any error but
// ErrUnauthorized the caller is known and the answer is to be signed.
func (v *Verifier) Verify(req *http.Request) (Caller, error) {
	r, err := v.authenticate(req)
	if err != nil {
		return Caller{}, err
	}
	now, created := v.now(), time.Unix(r.created, 0)
	switch {
	case now.Sub(created).Abs() > contract.ClockSkew:
		return r.caller, ErrClockSkew
	case req.Method == http.MethodGet:
	case r.meant.ID != v.instance.ID:
		return r.caller, ErrNewInstance
	case r.meant.Start != v.instance.Start:
		return r.caller, ErrNewStart
	}
	return r.caller, v.window.admit(r.nonce, created, now)
}

// authentic is what a request says whose MAC is right.
type authentic struct {
	signature
	caller Caller
	meant  contract.Instance // zero for a GET
}

// authenticate looks for a right MAC; without one it fails with ErrUnauthorized.
func (v *Verifier) authenticate(req *http.Request) (r authentic, err error) {
	if len(req.URL.Path)+len(req.URL.RawQuery) > contract.MaxHeaderBytes {
		return r, ErrUnauthorized
	}
	if _, ok := single(req.Header, HeaderContentDigest, maxDigestBytes); !ok {
		return r, ErrUnauthorized
	}
	if req.Method != http.MethodGet {
		if r.meant, err = instanceOf(req.Header); err != nil {
			return r, ErrUnauthorized
		}
	}
	list, ok := requestList(req.Method), false
	if r.signature, err = readSignature(req.Header, list); err != nil {
		return r, ErrUnauthorized
	}
	if r.caller, ok = callerOf(r.nonce); !ok || !v.secret.holds(r.signature, list, requestMessage(req)) {
		return r, ErrUnauthorized
	}
	return r, nil
}

// instanceOf reads the one Executor-Instance in h.
func instanceOf(h http.Header) (contract.Instance, error) {
	text, ok := single(h, contract.HeaderInstance, maxInstanceBytes)
	if !ok {
		return contract.Instance{}, fmt.Errorf("want one %s of at most %d bytes", contract.HeaderInstance, maxInstanceBytes)
	}
	return contract.ParseInstance(text)
}
