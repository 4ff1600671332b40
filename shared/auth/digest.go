package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
)

// digest is the Content-Digest of body (RFC 9530), which is body as sent, after any
// Content-Encoding. A message without a body has the digest of zero bytes.
func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// VerifyDigest checks body, as received, against the Content-Digest in h. It fails with
// ErrDigest, also if there are several or if the header is not written exactly as this
// package writes it.
func VerifyDigest(h http.Header, body []byte) error {
	field, ok := single(h, HeaderContentDigest, maxDigestBytes)
	if !ok || subtle.ConstantTimeCompare([]byte(field), []byte(digest(body))) != 1 {
		return ErrDigest
	}
	return nil
}
