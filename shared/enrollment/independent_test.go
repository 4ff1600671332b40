package enrollment

import (
	"crypto/aes"
	"crypto/cipher"
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

func TestGrantAndAnswerHaveTheDocumentedForm(t *testing.T) {
	o, r := fixedPair(t)
	g := Grant{Secret: longSecret, Tunnel: "none"}
	sealed, err := o.Seal(r.PublicKey(), g)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := encoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := o.private.ECDH(fixed(t, 2).PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(independent(t, shared, "grant", o, r))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	text, err := gcm.Open(nil, raw[:12], raw[12:], nil)
	if want := `{"secret":"` + longSecret + `","tunnel":"none"}`; err != nil || string(text) != want {
		t.Errorf("the grant holds %q, %v", text, err)
	}
	if _, err := r.Open(sealed); err != nil {
		t.Fatal(err)
	}
	a, err := r.Answer("http://a", "i")
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha256.New, independent(t, shared, "answer", o, r))
	for _, field := range [][]byte{[]byte(o.JobID()), o.private.PublicKey().Bytes(), r.public, []byte("http://a"), []byte("i")} {
		h.Write(append([]byte{0, 0, 0, byte(len(field))}, field...))
	}
	if want := encoding.EncodeToString(h.Sum(nil)); a.MAC != want {
		t.Errorf("the MAC is %s, want %s", a.MAC, want)
	}
}
