package jupyter

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// signatureScheme is the only scheme that kernels use.
const signatureScheme = "hmac-sha256"

// signer signs and verifies messages. With an empty key, the signature is empty and every
// message is accepted, as the protocol requires.
type signer []byte

func (s signer) sign(parts ...[]byte) []byte {
	if len(s) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, s)
	for _, part := range parts {
		mac.Write(part)
	}
	return hex.AppendEncode(nil, mac.Sum(nil))
}

func (s signer) verify(signature []byte, parts ...[]byte) bool {
	return len(s) == 0 || hmac.Equal(signature, s.sign(parts...))
}
