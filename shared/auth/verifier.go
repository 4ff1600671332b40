package auth

import (
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// Verifier verifies requests for an executor. It is safe for concurrent use.
type Verifier struct {
	secret   Secret
	instance contract.Instance
	now      func() time.Time
	window   *window
}

// NewVerifier makes a verifier for secret, which must not be zero. Requests other than GET
// must name instance. now is the clock.
//
// A new verifier has no nonces. Requests other than GET that were signed for an earlier
// start are still refused, because they name that start.
func NewVerifier(secret Secret, instance contract.Instance, now func() time.Time) *Verifier {
	if secret.IsZero() || instance.IsZero() {
		panic("auth: verifier without a secret or an instance")
	}
	return &Verifier{secret: secret, instance: instance, now: now, window: newWindow()}
}

// Verify checks everything of req but its query and body, in this order: sizes and form of
// the signature headers, key_id and MAC (ErrUnauthorized for all of these), time
// (ErrClockSkew), instance and start unless it is a GET (ErrNewInstance, ErrNewStart), and
// nonce (ErrReplayed, ErrTooManyNonces). It stores only the nonces of valid requests. Query
// and body are authentic only if they open with the keys of the exchange. For every error but
// ErrUnauthorized there is an exchange too, because the caller is verified and the answer
// should be signed.
func (v *Verifier) Verify(req *http.Request) (*Exchange, error) {
	r, err := v.authenticate(req)
	if err != nil {
		return nil, err
	}
	now, created := v.now(), time.Unix(r.created, 0)
	switch {
	case now.Sub(created).Abs() > contract.ClockSkew:
		return r.exchange, ErrClockSkew
	case req.Method == http.MethodGet:
	case r.intended.ID != v.instance.ID:
		return r.exchange, ErrNewInstance
	case r.intended.Start != v.instance.Start:
		return r.exchange, ErrNewStart
	}
	return r.exchange, v.window.admit(r.exchange.nonce, created, now)
}

// authentic is the content of a request with a correct MAC.
type authentic struct {
	exchange *Exchange
	created  int64
	intended contract.Instance // zero for a GET
}

// authenticate checks the MAC. It fails with ErrUnauthorized.
func (v *Verifier) authenticate(req *http.Request) (r authentic, err error) {
	sealed, ok := encoded(req.Header)
	if !ok || len(req.URL.Path)+len(req.URL.RawQuery) > contract.MaxHeaderBytes {
		return r, ErrUnauthorized
	}
	if req.Method != http.MethodGet {
		if r.intended, err = instanceOf(req.Header); err != nil {
			return r, ErrUnauthorized
		}
	}
	components := requestComponents(req.Method, sealed)
	claim, err := readSignature(req.Header, components, true)
	if err != nil {
		return r, ErrUnauthorized
	}
	base := requestBase(req, req.Header.Get(contract.HeaderInstance), sealed, claim.write(components))
	caller, ok := callerOf(claim.nonce)
	if !ok || !v.secret.verifies(claim, base) {
		return r, ErrUnauthorized
	}
	r.exchange = &Exchange{secret: v.secret, caller: caller, nonce: claim.nonce, mac: claim.mac}
	r.created = claim.created
	return r, nil
}

// instanceOf reads Executor-Instance, which must occur once in h.
func instanceOf(h http.Header) (contract.Instance, error) {
	text, ok := single(h, contract.HeaderInstance, maxInstanceBytes)
	if !ok {
		return contract.Instance{}, fmt.Errorf("the message must have one %s of at most %d bytes", contract.HeaderInstance, maxInstanceBytes)
	}
	return contract.ParseInstance(text)
}
