package auth

import (
	"encoding/base64"
	"encoding/hex"
)

// A nonce is unpadded base64url of 16 bytes or more. Those of a Signer are its Caller
// followed by 16 random bytes. Every caller keeps to that form; a key's holder who
// does not hurts only the fairness between the relays of that key.
const (
	freshBytes    = 16
	minNonceChars = 22 // 16 bytes
	maxNonceChars = 128
)

// Caller names the program that signed a request: the first bytes of each of its
// nonces. One key may be in use on several computers, and several relays on each;
// this is how the executor divides queue and rate between them. It is signed, but
// the key's holder chooses it: it proves nothing about who calls.
type Caller [8]byte

// String is the caller in hex digits.
func (c Caller) String() string { return hex.EncodeToString(c[:]) }

// newNonce is a fresh nonce of caller c.
func (c Caller) newNonce() string {
	return base64.RawURLEncoding.EncodeToString(append(c[:len(c):len(c)], randomBytes(freshBytes)...))
}

// callerOf is who made nonce; false when nonce is not one of this profile.
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
