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
