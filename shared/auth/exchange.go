package auth

import (
	"crypto/hmac"
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
)

// Exchange is one request and its answer. Both sides have one: a relay makes it with
// Signer.NewExchange, an executor gets it from Verifier.Verify. Its keys open only this
// request and this answer. It is for one goroutine at a time.
type Exchange struct {
	secret Secret
	caller Caller
	nonce  string
	mac    []byte // of the request; nil until it is signed
	answer []byte // the answer's MAC; nil until that is signed or verified
}

// Caller is the program that signed the request.
func (x *Exchange) Caller() Caller { return x.caller }

// QueryKey is the key of the request's query.
func (x *Exchange) QueryKey(method, path string) seal.Key {
	return x.secret.derive(labelQuery, method, path, x.nonce)
}

// BodyKey is the key of the request's body.
func (x *Exchange) BodyKey() seal.Key { return x.secret.derive(labelRequest, x.nonce) }

// AnswerKey is the key of the answer's body. The answer must have been signed or verified.
//
// A request that is repeated has several answers: that to the first copy and the refusals of
// the others. Each has its own key, so that the body of one does not open after the head of
// another.
func (x *Exchange) AnswerKey() seal.Key {
	if x.answer == nil {
		panic("auth: key of an answer that is neither signed nor verified")
	}
	return x.secret.derive(labelAnswer, string(x.answer))
}

// SignRequest adds Signature-Input and Signature to req, whose method, URL and
// Content-Encoding must not change afterwards. Unless it is a GET, its headers must contain
// Executor-Instance. An exchange signs one request: another attempt needs another one,
// because its nonce must be new.
func (x *Exchange) SignRequest(req *http.Request, created time.Time) error {
	p := parameters{created: created.Unix(), nonce: x.nonce, keyID: x.secret.KeyID()}
	return x.signRequest(req, p)
}

func (x *Exchange) signRequest(req *http.Request, p parameters) error {
	instance := req.Header.Get(contract.HeaderInstance)
	if _, err := instanceOf(req.Header); err != nil && methodOf(req) != http.MethodGet {
		return fmt.Errorf("signing a request: %w", err)
	}
	sealed, ok := encoded(req.Header)
	if !ok {
		return fmt.Errorf("signing a request: %s must be %q or absent", HeaderContentEncoding, Encoding)
	}
	params := p.write(requestComponents(methodOf(req), sealed))
	x.mac = x.secret.mac(requestBase(req, instance, sealed, params))
	setSignature(req.Header, params, x.mac)
	return nil
}

// SignAnswer adds Signature-Input and Signature to h, the headers of the answer with
// status. The request's MAC is covered, which binds the answer to the request. h must
// contain Executor-Instance, and Content-Encoding if the answer has a body.
func (x *Exchange) SignAnswer(h http.Header, status int, created time.Time) error {
	if _, err := instanceOf(h); err != nil {
		return fmt.Errorf("signing an answer: %w", err)
	}
	sealed, ok := encoded(h)
	if !ok {
		return fmt.Errorf("signing an answer: %s must be %q or absent", HeaderContentEncoding, Encoding)
	}
	params := parameters{created: created.Unix(), keyID: x.secret.KeyID()}.write(answerComponents(sealed))
	x.answer = x.secret.mac(answerBase(status, h.Get(contract.HeaderInstance), sealed, x.mac, params))
	setSignature(h, params, x.answer)
	return nil
}

func setSignature(h http.Header, params string, mac []byte) {
	h[HeaderSignatureInput] = []string{label + "=" + params}
	h[HeaderSignature] = []string{writeMAC(mac)}
}

// VerifyAnswer checks that res, without its body, is the executor's answer to the request
// of this exchange. The MAC of that request counts, not one that the answer contains. The
// time of the answer is not checked, because the answer is bound to a request with a new
// nonce. It fails with ErrUnsigned if a signature header is missing and with
// ErrBadSignature otherwise.
func (x *Exchange) VerifyAnswer(res *http.Response) error {
	if len(res.Header[HeaderSignature]) == 0 || len(res.Header[HeaderSignatureInput]) == 0 {
		return ErrUnsigned
	}
	// The form of the instance is not checked, because an executor of another release may use
	// another one, which is not a forgery.
	instance, once := single(res.Header, contract.HeaderInstance, maxInstanceBytes)
	sealed, ok := encoded(res.Header)
	if !once || !ok {
		return ErrBadSignature
	}
	components := answerComponents(sealed)
	claim, err := readSignature(res.Header, components, false)
	if err != nil {
		return ErrBadSignature
	}
	base := answerBase(res.StatusCode, instance, sealed, x.mac, claim.write(components))
	if !x.secret.verifies(claim, base) {
		return ErrBadSignature
	}
	x.answer = claim.mac
	return nil
}

// verifies reports whether claim is the signature of base with this key. It computes the MAC
// and compares it in constant time whatever the key_id is, so that the time does not reveal
// the cause of a failure.
func (s Secret) verifies(claim signature, base string) bool {
	rightKey := hmac.Equal([]byte(claim.keyID), []byte(s.KeyID()))
	rightMAC := hmac.Equal(claim.mac, s.mac(base))
	return rightKey && rightMAC
}
