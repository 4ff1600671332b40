package auth

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// began is the time on the executor's clock in these tests.
var began = time.Unix(1_790_000_000, 0)

// here is the executor of these tests.
var here = contract.Instance{ID: "instance-1", Start: "start-1"}

func newTestVerifier(t testing.TB) *Verifier { return verifierAt(t, began) }

func verifierAt(t testing.TB, now time.Time) *Verifier {
	return NewVerifier(testSecret(t), here, func() time.Time { return now })
}

// readRequest parses a request as an http.Server does.
func readRequest(t testing.TB, wire string) *http.Request {
	t.Helper()
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// arrived writes req to memory and reads it as a server does.
func arrived(t testing.TB, req *http.Request) *http.Request {
	t.Helper()
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		t.Fatal(err)
	}
	return readRequest(t, wire.String())
}

// exchange is a signed request as the executor received it, and what the relay keeps of it.
type exchange struct {
	req       *http.Request
	signature string
}

func signed(t testing.TB, method, url, body string, created time.Time) exchange {
	t.Helper()
	return signedFor(t, here.String(), method, url, body, created)
}

func signedFor(t testing.TB, instance, method, url, body string, created time.Time) exchange {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method != http.MethodGet {
		req.Header.Set(contract.HeaderInstance, instance)
	}
	signature, err := NewSigner(testSecret(t)).SignRequest(req, []byte(body), created)
	if err != nil {
		t.Fatal(err)
	}
	return exchange{arrived(t, req), signature}
}

// answered is a signed answer as the relay received it.
func answered(t testing.TB, req *http.Request, status int, body string) *http.Response {
	t.Helper()
	h := http.Header{contract.HeaderInstance: {here.String()}}
	if err := NewSigner(testSecret(t)).SignResponse(h, req, status, []byte(body), began); err != nil {
		t.Fatal(err)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}
