package line_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
	"colabrelay/shared/line/linetest"
)

var here = contract.Instance{ID: "instance-1", Start: "start-1"}

// sent is a sealed and signed request with the exchange of each side.
type sent struct {
	req   *http.Request
	relay *auth.Exchange
	text  []byte
}

func send(t *testing.T, secret auth.Secret, method, target string, text []byte) sent {
	t.Helper()
	req := httptest.NewRequest(method, target, nil)
	if method != http.MethodGet {
		req.Header.Set(contract.HeaderInstance, here.String())
	}
	return sent{req, linetest.Seal(t, secret, req, text, time.Now()), text}
}

// executor is a new executor, which accepts each request once.
func executor(secret auth.Secret) *linetest.Executor {
	return linetest.NewExecutor(secret, here, time.Now)
}

func TestQueriesAndBodiesArrive(t *testing.T) {
	secret := auth.GenerateSecret()
	for name, text := range map[string][]byte{
		"none": nil, "a byte": {0}, "JSON": []byte(`{"code":"1+1"}`), "256 bytes": bytes.Repeat([]byte("x"), 255),
		"compressible": bytes.Repeat([]byte("print(1)\n"), 2_000), "records": bytes.Repeat([]byte{1, 2, 3, 0}, 20_000),
	} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			s := send(t, secret, method, "/v1/x?offset=3&name=a+b", text)
			if s.req.URL.RawQuery == "" || strings.Contains(s.req.URL.RawQuery, "offset") {
				t.Fatalf("the query is sent as %q", s.req.URL.RawQuery)
			}
			x, got, err := executor(secret).Open(s.req)
			if err != nil || !bytes.Equal(got, text) || s.req.URL.RawQuery != "offset=3&name=a+b" {
				t.Fatalf("%s %s: %d bytes of %d, query %q, %v", method, name, len(got), len(text), s.req.URL.RawQuery, err)
			}
			for _, part := range []bool{false, true} {
				w := httptest.NewRecorder()
				if part {
					executor(secret).AnswerPart(w, x, bytes.NewReader(text), int64(len(text)))
				} else {
					executor(secret).Answer(w, x, http.StatusOK, text)
				}
				res := w.Result()
				got, err := linetest.Open(s.relay, res, res.Body, part)
				if err != nil || !bytes.Equal(got, text) {
					t.Errorf("answer to %s %s, part %v: %d bytes of %d, %v", method, name, part, len(got), len(text), err)
				}
			}
		}
	}
}

// A sealed text opens only in its direction and only for its request. Each case moves sealed
// bytes to a place where the signature still holds.
func TestSealedBytesOpenNowhereElse(t *testing.T) {
	secret := auth.GenerateSecret()
	text := []byte("a text")
	body := func(s sent) []byte {
		sealed, err := io.ReadAll(s.req.Body)
		if err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	open := func(s sent, sealed []byte) error {
		s.req.Body, s.req.ContentLength = io.NopCloser(bytes.NewReader(sealed)), int64(len(sealed))
		_, _, err := executor(secret).Open(s.req)
		return err
	}
	for _, method := range []string{"POST", "PUT"} {
		first, second := send(t, secret, method, "/v1/x", text), send(t, secret, method, "/v1/x", text)
		if err := open(first, body(second)); !line.Unopened(err) {
			t.Errorf("%s: the body of another request opens: %v", method, err)
		}
	}
	asked, other := send(t, secret, "POST", "/v1/x", text), send(t, secret, "POST", "/v1/x", text)
	request := body(asked)
	asked.req.Body = io.NopCloser(bytes.NewReader(request))
	x, _, err := executor(secret).Open(asked.req)
	if err != nil {
		t.Fatal(err)
	}
	y, _, err := executor(secret).Open(other.req)
	if err != nil {
		t.Fatal(err)
	}
	restarted := linetest.NewExecutor(secret, contract.Instance{ID: here.ID, Start: "start-2"}, time.Now)
	answer := func(e *linetest.Executor, x *auth.Exchange, status int) []byte {
		w := httptest.NewRecorder()
		e.Answer(w, x, status, text)
		return w.Body.Bytes()
	}
	for name, sealed := range map[string][]byte{
		"the request":                  request,
		"an answer to another":         answer(executor(secret), y, http.StatusOK),
		"a refusal of the same":        answer(executor(secret), x, http.StatusUnauthorized),
		"an answer after it restarted": answer(restarted, x, http.StatusOK),
	} {
		w := httptest.NewRecorder()
		executor(secret).Answer(w, x, http.StatusOK, text)
		got, err := linetest.Open(asked.relay, w.Result(), bytes.NewReader(sealed), false)
		if !line.Unopened(err) {
			t.Errorf("%s opens as the answer: %q, %v", name, got, err)
		}
	}
}

// The key of a query includes method and path, so it opens at no other endpoint, even if the
// nonce were the same.
func TestAQueryOpensOnlyAtItsEndpoint(t *testing.T) {
	secret := auth.GenerateSecret()
	s := send(t, secret, "GET", "/v1/files?path=a", nil)
	for _, target := range []string{"/v1/files/stat", "/v1/files/", "/"} {
		moved := s.req.Clone(t.Context())
		moved.URL.Path = target
		if err := line.OpenQuery(s.relay, moved); !line.Unopened(err) {
			t.Errorf("%s: %v", target, err)
		}
	}
	moved := s.req.Clone(t.Context())
	moved.Method = "DELETE"
	if err := line.OpenQuery(s.relay, moved); !line.Unopened(err) {
		t.Errorf("DELETE: %v", err)
	}
	if err := line.OpenQuery(s.relay, s.req); err != nil || s.req.URL.RawQuery != "path=a" {
		t.Errorf("at its endpoint: %q, %v", s.req.URL.RawQuery, err)
	}
}

// The head says that there is no body, and the signature covers that.
func TestBytesAfterAMessageWithoutABodyAreRefused(t *testing.T) {
	secret := auth.GenerateSecret()
	for _, method := range []string{"GET", "POST", "PUT"} {
		s := send(t, secret, method, "/v1/x", nil)
		s.req.Body, s.req.ContentLength = io.NopCloser(strings.NewReader("x")), -1
		if _, _, err := executor(secret).Open(s.req); !errors.Is(err, line.ErrUnexpectedBody) {
			t.Errorf("%s: %v", method, err)
		}
	}
	s := send(t, secret, "POST", "/v1/x", nil)
	x, _, err := executor(secret).Open(s.req)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	executor(secret).Answer(w, x, http.StatusOK, nil)
	for _, part := range []bool{false, true} {
		if got, err := linetest.Open(s.relay, w.Result(), strings.NewReader("x"), part); !line.Unopened(err) || len(got) != 0 {
			t.Errorf("an answer: %q, %v", got, err)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	secret := auth.GenerateSecret()
	for _, announced := range []int64{-1, line.MaxSealedBody + 1} {
		s := send(t, secret, "POST", "/v1/x", []byte("x"))
		s.req.Body, s.req.ContentLength = io.NopCloser(endless{}), announced
		if _, _, err := executor(secret).Open(s.req); !errors.Is(err, bounded.ErrTooLong) {
			t.Errorf("an endless body of %d bytes: %v", announced, err)
		}
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
