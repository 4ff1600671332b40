package auth

import (
	"bufio"
	"bytes"
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

// sent is a signed request as the executor received it, and what the relay keeps of it.
type sent struct {
	req *http.Request
	*Exchange
}

// send signs a request whose body, if any, is sealed.
func send(t testing.TB, method, url string, sealed bool, created time.Time) sent {
	t.Helper()
	return sendTo(t, here.String(), method, url, sealed, created)
}

func sendTo(t testing.TB, instance, method, url string, sealed bool, created time.Time) sent {
	t.Helper()
	req := unsigned(t, instance, method, url, sealed)
	x := NewSigner(testSecret(t)).NewExchange()
	if err := x.SignRequest(req, created); err != nil {
		t.Fatal(err)
	}
	return sent{arrived(t, req), x}
}

func unsigned(t testing.TB, instance, method, url string, sealed bool) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if method != http.MethodGet {
		req.Header.Set(contract.HeaderInstance, instance)
	}
	if sealed {
		req.Header.Set(HeaderContentEncoding, Encoding)
	}
	return req
}

// sendAs signs a request with these parameters.
func sendAs(t testing.TB, secret Secret, method string, p parameters) *http.Request {
	t.Helper()
	req := unsigned(t, here.String(), method, testTarget, false)
	x := &Exchange{secret: secret, nonce: p.nonce}
	if err := x.signRequest(req, p); err != nil {
		t.Fatal(err)
	}
	return arrived(t, req)
}

// answered is a signed answer as the relay received it.
func answered(t testing.TB, s sent, status int, sealed bool) *http.Response {
	t.Helper()
	x := &Exchange{secret: testSecret(t), mac: s.mac}
	h := http.Header{contract.HeaderInstance: {here.String()}}
	if sealed {
		h.Set(HeaderContentEncoding, Encoding)
	}
	if err := x.SignAnswer(h, status, began); err != nil {
		t.Fatal(err)
	}
	return &http.Response{StatusCode: status, Header: h, Body: http.NoBody}
}
