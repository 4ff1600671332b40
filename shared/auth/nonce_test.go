package auth

import (
	"testing"
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
