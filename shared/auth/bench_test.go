package auth

import (
	"net/http"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

func BenchmarkSignRequest(b *testing.B) {
	signer, body := NewSigner(testSecret(b)), []byte(`{"request_id":"r","code":"1+1"}`)
	req, err := http.NewRequest("POST", testTarget, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set(contract.HeaderInstance, here.String())
	for b.Loop() {
		if _, err := signer.SignRequest(req, body, began); err != nil {
			b.Fatal(err)
		}
	}
}

// Without the window, which would fill up.
func BenchmarkVerifyWithoutWindow(b *testing.B) {
	secret, req := testSecret(b), signed(b, "POST", testTarget, "", began).req
	for b.Loop() {
		claim, err := readSignature(req.Header, changeList)
		if err != nil || !secret.verifies(claim, changeList, requestMessage(req)) {
			b.Fatal("refused")
		}
	}
}

func BenchmarkWindow(b *testing.B) {
	w := newWindow()
	now := began
	for b.Loop() {
		now = now.Add(time.Minute / 6000)
		if err := w.admit(randomText(freshBytes), now, now); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyResponse(b *testing.B) {
	signer := NewSigner(testSecret(b))
	asked := signed(b, "GET", testTarget, "", began)
	res := answered(b, asked.req, 200, "body")
	for b.Loop() {
		if err := signer.VerifyResponse(res, []byte("body"), asked.signature); err != nil {
			b.Fatal(err)
		}
	}
}
