package auth

import (
	"crypto/hmac"
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// Signer signs requests and answers, and verifies answers. It is safe for concurrent use.
type Signer struct {
	secret Secret
	caller Caller
}

// NewSigner makes a signer for secret, which must not be zero, with a new Caller. A relay
// makes one signer for each executor when it starts.
func NewSigner(secret Secret) *Signer {
	if secret.IsZero() {
		panic("auth: signer without a secret")
	}
	return &Signer{secret: secret, caller: Caller(randomBytes(len(Caller{})))}
}

// SignRequest adds Content-Digest, Signature-Input and Signature to req, whose
// method, URL and body (the bytes as sent) must not change afterwards. Unless it is a GET,
// its headers must contain Executor-Instance. Each call uses a new nonce, so every attempt
// of a request must be signed again. VerifyResponse needs the returned signature.
func (s *Signer) SignRequest(req *http.Request, body []byte, created time.Time) (signature string, err error) {
	p := parameters{created: created.Unix(), nonce: s.caller.newNonce(), keyID: s.secret.KeyID()}
	return s.signRequest(req, body, p)
}

func (s *Signer) signRequest(req *http.Request, body []byte, p parameters) (string, error) {
	m := requestMessage(req)
	if _, err := instanceOf(req.Header); err != nil && m.method != http.MethodGet {
		return "", fmt.Errorf("signing a request: %w", err)
	}
	req.Header.Set(HeaderContentDigest, digest(body))
	signature, err := s.secret.sign(req.Header, requestList(m.method)(p), m)
	if err != nil {
		return "", fmt.Errorf("signing a request: %w", err)
	}
	return signature, nil
}

// SignResponse adds Content-Digest, Signature-Input and Signature to h, the headers of the
// answer to req. req must have been verified, because its signature is covered by this one,
// which binds the answer to the request. h must contain Executor-Instance.
func (s *Signer) SignResponse(h http.Header, req *http.Request, status int, body []byte, created time.Time) error {
	if _, err := instanceOf(h); err != nil {
		return fmt.Errorf("signing an answer: %w", err)
	}
	h.Set(HeaderContentDigest, digest(body))
	m := &message{status: status, header: h, request: &message{header: req.Header}}
	p := parameters{created: created.Unix(), keyID: s.secret.KeyID()}
	if _, err := s.secret.sign(h, responseList(p), m); err != nil {
		return fmt.Errorf("signing an answer: %w", err)
	}
	return nil
}

// VerifyResponse checks that res with body (the bytes as received) is the executor's answer
// to the request with sentSignature, which SignRequest returned. The time of the answer is
// not checked, because the answer is bound to a request of this caller with a new nonce.
//
// It fails with ErrUnsigned if a signature header is missing and with ErrBadSignature
// otherwise, which wraps ErrDigest too if only the body is wrong.
func (s *Signer) VerifyResponse(res *http.Response, body []byte, sentSignature string) error {
	if len(res.Header[HeaderSignature]) == 0 || len(res.Header[HeaderSignatureInput]) == 0 {
		return ErrUnsigned
	}
	claim, err := readSignature(res.Header, responseList)
	if err != nil {
		return ErrBadSignature
	}
	// The form of the instance is not checked, because an executor of another release may use
	// another one, which is not a forgery.
	if _, ok := single(res.Header, contract.HeaderInstance, maxInstanceBytes); !ok {
		return ErrBadSignature
	}
	asked := http.Header{HeaderSignature: {sentSignature}}
	m := &message{status: res.StatusCode, header: res.Header, request: &message{header: asked}}
	if !s.secret.verifies(claim, responseList, m) {
		return ErrBadSignature
	}
	if err := VerifyDigest(res.Header, body); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	return nil
}

// verifies reports whether claim is the signature of m with this key. It computes the MAC
// and compares it in constant time whatever the key_id is, so that the time does not reveal
// the cause of a failure.
func (s Secret) verifies(claim signature, list listOf, m *message) bool {
	base, err := signatureBase(list(claim.parameters), m)
	if err != nil {
		return false
	}
	rightKey := hmac.Equal([]byte(claim.keyID), []byte(s.KeyID()))
	rightMAC := hmac.Equal(claim.mac, s.mac(base))
	return rightKey && rightMAC
}
