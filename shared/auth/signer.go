package auth

// Signer starts exchanges for a relay. It is safe for concurrent use.
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

// NewExchange starts an exchange with a new nonce.
func (s *Signer) NewExchange() *Exchange {
	return &Exchange{secret: s.secret, caller: s.caller, nonce: s.caller.newNonce()}
}
