package auth

import (
	"crypto/hmac"
	"fmt"
	"net/http"
	"time"

	"colabrelay/shared/contract"
)

// Signer signs requests and answers, and checks answers. It is safe for concurrent
// use.
type Signer struct {
	secret Secret
	caller Caller
}

// NewSigner signs with secret, which must not be zero, as a new Caller. A relay makes
// one for each executor, when it starts.
func NewSigner(secret Secret) *Signer {
	if secret.IsZero() {
		panic("auth: signer without a secret")
	}
	return &Signer{secret: secret, caller: Caller(randomBytes(len(Caller{})))}
}

// SignRequest adds Content-Digest, Signature-Input and Signature to req, whose
// method, URL and body (the bytes as they will be sent) must not change afterwards.
// Unless it is a GET, its header must hold Executor-Instance. Each call takes a fresh
// nonce, so each try of a request is signed anew. The returned signature is what
// VerifyResponse needs.
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

// SignResponse adds Content-Digest, Signature-Input and Signature to h, the headers
// of the answer to req. req must have passed Verifier.Verify: its signature goes
// into this one and so binds the answer to it. h must hold Executor-Instance.
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

// VerifyResponse checks that res with body (the bytes as they came) is the
// executor's answer to the request whose signature SignRequest returned. The
// signature sent is used, never one res shows. The answer's own time is not looked
// at: the request it is bound to was made by this caller, with a nonce.
//
// Fails with ErrUnsigned when a signature header is missing, else with
// ErrBadSignature; also ErrDigest when only the body differs.
func (s *Signer) VerifyResponse(res *http.Response, body []byte, sentSignature string) error {
	if len(res.Header[HeaderSignature]) == 0 || len(res.Header[HeaderSignatureInput]) == 0 {
		return ErrUnsigned
	}
	claim, err := readSignature(res.Header, responseList)
	if err != nil {
		return ErrBadSignature
	}
	// Its form is not looked at: an executor of another release may have another one, and
	// that is worth telling apart from a forgery.
	if _, ok := single(res.Header, contract.HeaderInstance, maxInstanceBytes); !ok {
		return ErrBadSignature
	}
	asked := http.Header{HeaderSignature: {sentSignature}}
	m := &message{status: res.StatusCode, header: res.Header, request: &message{header: asked}}
	if !s.secret.holds(claim, responseList, m) {
		return ErrBadSignature
	}
	if err := VerifyDigest(res.Header, body); err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	return nil
}

// holds reports whether claim is this key's signature over m. The MAC is computed
// and compared in constant time whatever key_id says, so that the time taken tells
// no cause.
func (s Secret) holds(claim signature, list listOf, m *message) bool {
	base, err := signatureBase(list(claim.parameters), m)
	if err != nil {
		return false
	}
	rightKey := hmac.Equal([]byte(claim.keyID), []byte(s.KeyID()))
	rightMAC := hmac.Equal(claim.mac, s.mac(base))
	return rightKey && rightMAC
}
