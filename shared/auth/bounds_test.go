package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestTheLengthOfANonceIsBounded(t *testing.T) {
	for chars, want := range map[int]bool{minNonceChars - 2: false, minNonceChars: true, maxNonceChars: true, maxNonceChars + 2: false} {
		nonce := base64.RawURLEncoding.EncodeToString(make([]byte, chars*3/4))
		if _, ok := callerOf(nonce); len(nonce) != chars || ok != want {
			t.Errorf("a nonce of %d characters: %v", len(nonce), ok)
		}
	}
}

// The headers are bounded before anything in them is read.
func TestTheHeadersOfASignatureAreBounded(t *testing.T) {
	for _, most := range []int{maxInputBytes, maxInstanceBytes} {
		for over := range 2 {
			h := http.Header{"X": {strings.Repeat("x", most+over)}}
			if _, ok := single(h, "X", most); ok != (over == 0) {
				t.Errorf("a header of %d bytes, of which %d may be: %v", most+over, most, ok)
			}
		}
	}
	if _, err := readSignature(http.Header{HeaderSignatureInput: {strings.Repeat("x", maxInputBytes+1)}}, "", true); !errors.Is(err, errForm) {
		t.Errorf("a long Signature-Input: %v", err)
	}
	if _, err := instanceOf(http.Header{"Executor-Instance": {strings.Repeat("x", maxInstanceBytes+1)}}); err == nil {
		t.Error("a long Executor-Instance is read")
	}
}

func TestAPairingStringIsRefusedPastItsBound(t *testing.T) {
	for over := range 2 {
		_, err := ParsePairing(strings.Repeat("x", maxPairingBytes+over))
		if err == nil || strings.Contains(err.Error(), "longer than") != (over == 1) {
			t.Errorf("%d past the bound: %v", over, err)
		}
	}
}
