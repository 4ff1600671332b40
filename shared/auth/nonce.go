package auth

import (
	"encoding/base64"
	"encoding/hex"
)

// A nonce is unpadded base64url of at least 16 bytes. A Signer's nonces are its Caller
// followed by 16 random bytes. The form is not enforced: a holder of the key who uses
// another one affects only the fairness between the relays that share the key.
const (
	freshBytes    = 16
	minNonceChars = 22 // 16 bytes
	maxNonceChars = 128
)

// Caller identifies the program that signed a request. It is the first bytes of each of
// the program's nonces. Several relays on several computers may share one key, and the
// executor divides queue and rate between callers. The caller is signed, but any holder of
// the key can choose it, so it proves nothing.
type Caller [8]byte

// String is the caller in hex digits.
func (c Caller) String() string { return hex.EncodeToString(c[:]) }

// newNonce makes a nonce of caller c.
func (c Caller) newNonce() string {
	return base64.RawURLEncoding.EncodeToString(append(c[:len(c):len(c)], randomBytes(freshBytes)...))
}

// callerOf is the caller that made nonce. It returns false if nonce does not fit the profile.
func callerOf(nonce string) (Caller, bool) {
	if len(nonce) < minNonceChars || len(nonce) > maxNonceChars {
		return Caller{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(nonce)
	if err != nil {
		return Caller{}, false
	}
	return Caller(raw[:len(Caller{})]), true
}
