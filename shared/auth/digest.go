package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
)

// digest is the Content-Digest of body (RFC 9530): of the bytes as sent, so after
// any Content-Encoding, and of no bytes where there is no body.
func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// VerifyDigest checks body, as it came over the wire, against the one Content-Digest
// in h. Only a digest written as this package writes it counts. Fails with ErrDigest.
func VerifyDigest(h http.Header, body []byte) error {
	field, ok := single(h, HeaderContentDigest, maxDigestBytes)
	if !ok || subtle.ConstantTimeCompare([]byte(field), []byte(digest(body))) != 1 {
		return ErrDigest
	}
	return nil
}
