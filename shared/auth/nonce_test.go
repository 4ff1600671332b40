package auth

import (
	"errors"
	"testing"
	"time"
)

func TestNoncesNameTheirSignerAndNeverRepeat(t *testing.T) {
	first, second := NewSigner(testSecret(t)), NewSigner(testSecret(t))
	if first.caller == second.caller {
		t.Fatal("two signers are one caller")
	}
	seen := map[string]bool{}
	for range 1000 {
		for _, s := range []*Signer{first, second} {
			nonce := s.caller.newNonce()
			if seen[nonce] {
				t.Fatalf("nonce %q twice", nonce)
			}
			seen[nonce] = true
			if got, ok := callerOf(nonce); !ok || got != s.caller {
				t.Fatalf("nonce %q is of caller %v, %v; want %v", nonce, got, ok, s.caller)
			}
		}
	}
}

func TestVerifyReturnsTheExchangeOfEveryCorrectMAC(t *testing.T) {
	v := newTestVerifier(t)
	got := send(t, "GET", testTarget, false, began)
	first, err := v.Verify(got.req)
	if err != nil || first.Caller() == (Caller{}) || first.Caller() != got.Caller() {
		t.Fatalf("exchange %v, %v", first, err)
	}
	again, err := v.Verify(got.req)
	if !errors.Is(err, ErrReplayed) || again.Caller() != first.Caller() {
		t.Errorf("of a replay: %v, %v", again, err)
	}
	old := send(t, "GET", testTarget, false, began.Add(-time.Hour))
	other, err := v.Verify(old.req)
	if !errors.Is(err, ErrClockSkew) || other.Caller() != old.Caller() {
		t.Errorf("of an old request: %v, %v", other, err)
	}
	old.req.Method = "DELETE"
	if x, err := v.Verify(old.req); !errors.Is(err, ErrUnauthorized) || x != nil {
		t.Errorf("of a forged request: %v, %v", x, err)
	}
}
