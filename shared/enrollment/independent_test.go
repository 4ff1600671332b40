package enrollment

import (
	"crypto/hmac"
	"crypto/sha256"
	"testing"
)

// independent derives a key by RFC 5869's own steps, without the code under test.
func independent(t *testing.T, shared []byte, label string, o *Offer, r *Response) []byte {
	t.Helper()
	mac := func(key []byte, parts ...[]byte) []byte {
		h := hmac.New(sha256.New, key)
		for _, part := range parts {
			h.Write(part)
		}
		return h.Sum(nil)
	}
	var info []byte
	for _, field := range [][]byte{[]byte(label), []byte(o.JobID()), o.private.PublicKey().Bytes(), r.public} {
		info = append(append(info, 0, 0, 0, byte(len(field))), field...)
	}
	prk := mac([]byte("colab-relay enrol v1"), shared)
	return mac(prk, info, []byte{1})
}
