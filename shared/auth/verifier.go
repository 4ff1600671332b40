package auth

import (
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// Verifier checks requests on the executor's side. It is safe for concurrent use.
type Verifier struct {
	secret  Secret
	started time.Time
	now     func() time.Time
	window  *window
}

// NewVerifier checks requests against secret, which must not be zero. started is
// when this executor's memory of nonces began; requests signed before it are
// refused. now is the clock, time.Now where nil.
//
// created counts whole seconds, so started counts from the beginning of its
// second: refusing that second whole would refuse the first genuine requests too.
func NewVerifier(secret Secret, started time.Time, now func() time.Time) *Verifier {
	if secret.IsZero() {
		panic("auth: verifier without a secret")
	}
	if now == nil {
		now = time.Now
	}
	return &Verifier{secret: secret, started: started.Truncate(time.Second), now: now, window: newWindow()}
}

// Verify checks all of req but its body, in this order: sizes and form of the
// signature headers, key_id and MAC (ErrUnauthorized for each of these), time
// (ErrClockSkew), nonce (ErrReplayed, ErrTooManyNonces). Nothing is remembered of a
// request whose MAC is wrong. What remains is VerifyDigest, once the body is read.
// After any error but ErrUnauthorized the caller is known and the answer is to be
// signed.
func (v *Verifier) Verify(req *http.Request) (Caller, error) {
	claim, caller, err := v.authenticate(req)
	if err != nil {
		return Caller{}, err
	}
	now, created := v.now(), time.Unix(claim.created, 0)
	if created.Before(v.started) || now.Sub(created).Abs() > contract.ClockSkew {
		return caller, ErrClockSkew
	}
	return caller, v.window.admit(claim.nonce, created, now)
}

// authenticate looks for a right MAC; without one it fails with ErrUnauthorized.
func (v *Verifier) authenticate(req *http.Request) (signature, Caller, error) {
	if len(req.URL.Path)+len(req.URL.RawQuery) > contract.MaxHeaderBytes {
		return signature{}, Caller{}, ErrUnauthorized
	}
	if _, ok := single(req.Header, HeaderContentDigest, maxDigestBytes); !ok {
		return signature{}, Caller{}, ErrUnauthorized
	}
	claim, err := readSignature(req.Header, requestList)
	if err != nil {
		return signature{}, Caller{}, ErrUnauthorized
	}
	caller, ok := callerOf(claim.nonce)
	if !ok || !v.secret.holds(claim, requestList, requestMessage(req)) {
		return signature{}, Caller{}, ErrUnauthorized
	}
	return claim, caller, nil
}
