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

func TestVerifyReturnsTheCallerOfEveryCorrectMAC(t *testing.T) {
	v := newTestVerifier(t)
	got := signed(t, "GET", testTarget, "", began)
	caller, err := v.Verify(got.req)
	if err != nil || caller == (Caller{}) {
		t.Fatalf("caller %v, %v", caller, err)
	}
	if again, err := v.Verify(got.req); !errors.Is(err, ErrReplayed) || again != caller {
		t.Errorf("of a replay: caller %v, %v", again, err)
	}
	old := signed(t, "GET", testTarget, "", began.Add(-time.Hour))
	if other, err := v.Verify(old.req); !errors.Is(err, ErrClockSkew) || other == (Caller{}) || other == caller {
		t.Errorf("of an old request: caller %v, %v", other, err)
	}
	old.req.Method = "DELETE"
	if caller, err := v.Verify(old.req); !errors.Is(err, ErrUnauthorized) || caller != (Caller{}) {
		t.Errorf("of a forged request: caller %v, %v", caller, err)
	}
}
