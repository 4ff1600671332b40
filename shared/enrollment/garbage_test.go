package enrollment

import (
	"errors"
	"strings"
	"testing"
)

func TestDamagedGrantsOpenNothingAndTheGoodOneStillOpens(t *testing.T) {
	o, r := pair(t)
	sealed, err := o.Seal(r.PublicKey(), someGrant)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := encoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	for at := range raw {
		bad := append([]byte(nil), raw...)
		bad[at] ^= 1 << (at % 8)
		refused(t, r, encoding.EncodeToString(bad))
	}
	for end := range len(raw) {
		refused(t, r, encoding.EncodeToString(raw[:end]))
	}
	for _, bad := range []string{sealed + "A", sealed + "=", sealed + "\n", "\r\n" + sealed, sealed[:10] + "\n" + sealed[10:], strings.Repeat("A", MaxSealedBytes+1), "ü"} {
		refused(t, r, bad)
	}
	if _, err := r.Open(sealed); err != nil {
		t.Errorf("after all these, the good grant: %v", err)
	}
}

func refused(t *testing.T, r *Response, sealed string) {
	t.Helper()
	if g, err := r.Open(sealed); !errors.Is(err, ErrGrant) || g != (Grant{}) {
		t.Fatalf("%.60q: %v", sealed, err)
	}
}

func FuzzOpen(f *testing.F) {
	o, r := pair(f)
	sealed, err := o.Seal(r.PublicKey(), someGrant)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add("")
	f.Add(strings.Repeat("A", 100))
	f.Fuzz(func(t *testing.T, text string) {
		fresh := &Response{made: r.made, public: r.public, keys: r.keys}
		g, err := fresh.Open(text)
		if (err == nil) != (text == sealed) {
			t.Errorf("%q opened as %v, %v", text, g, err)
		}
	})
}

func FuzzPublicKey(f *testing.F) {
	_, r := pair(f)
	f.Add(r.PublicKey())
	f.Fuzz(func(t *testing.T, text string) {
		key, err := publicKey(text)
		if err == nil && encoding.EncodeToString(key.Bytes()) != text {
			t.Errorf("%q was read as %q", text, encoding.EncodeToString(key.Bytes()))
		}
	})
}
