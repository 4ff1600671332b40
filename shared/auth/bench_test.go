package auth

import (
	"testing"
	"time"
)

func BenchmarkSignRequest(b *testing.B) {
	signer, req := NewSigner(testSecret(b)), unsigned(b, here.String(), "POST", testTarget, true)
	for b.Loop() {
		if err := signer.NewExchange().SignRequest(req, began); err != nil {
			b.Fatal(err)
		}
	}
}

// Without the window, which would fill up.
func BenchmarkAuthenticate(b *testing.B) {
	v, req := newTestVerifier(b), send(b, "POST", testTarget, true, began).req
	for b.Loop() {
		if _, err := v.authenticate(req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkKeys(b *testing.B) {
	x := send(b, "GET", testTarget, false, began)
	if err := x.VerifyAnswer(answered(b, x, 200, true)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		x.QueryKey("GET", "/v1/executions")
		x.AnswerKey()
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

func BenchmarkVerifyAnswer(b *testing.B) {
	asked := send(b, "GET", testTarget, false, began)
	res := answered(b, asked, 200, true)
	for b.Loop() {
		if err := asked.VerifyAnswer(res); err != nil {
			b.Fatal(err)
		}
	}
}
