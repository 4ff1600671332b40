package line_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/memory"
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
	for _, method := range []string{"POST", "PUT"} {
		s := send(t, secret, method, "/v1/x", make([]byte, contract.MaxBodyBytes+1))
		if _, got, err := executor(secret).Open(s.req); !errors.Is(err, bounded.ErrTooLong) || len(got) > contract.MaxBodyBytes {
			t.Errorf("%s: %d bytes, %v", method, len(got), err)
		}
	}
}

// bubble returns test with the clock of synctest.
func bubble(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// answered opens an answer with a text to a request with the context ctx.
func answered(t *testing.T, ctx context.Context, text string) ([]byte, error) {
	t.Helper()
	secret := auth.GenerateSecret()
	s := send(t, secret, http.MethodGet, "/v1/x", nil)
	x, _, err := executor(secret).Open(s.req)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	executor(secret).Answer(w, x, http.StatusOK, []byte(text))
	res := w.Result()
	res.Request = s.req.WithContext(ctx)
	return linetest.Open(s.relay, res, res.Body, false)
}

// takeAll takes all turns of a kind until the test ends. It runs in a bubble of synctest.
func takeAll(t *testing.T, turns *memory.Turns) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		done, err := turns.Take(ctx)
		cancel()
		if err != nil {
			return
		}
		t.Cleanup(done)
	}
}

// An answer over memory.Small is read and decoded only while the process has a turn for it,
// however few bytes it has when it is sealed. Smaller ones do not wait.
func TestOnlyLargeAnswersWaitForATurn(t *testing.T) {
	random := make([]byte, memory.Small+1)
	_, _ = rand.Read(random)
	large := hex.EncodeToString(random)
	for name, test := range map[string]struct {
		turns *memory.Turns
		text  string
		waits bool
	}{
		"a large answer that arrives":         {memory.Arriving, large, true},
		"a large answer that is decoded":      {memory.Decoding, large, true},
		"one that was compressed":             {memory.Decoding, strings.Repeat("a", memory.Small+1), true},
		"one at the bound that is compressed": {memory.Decoding, strings.Repeat("a", memory.Small), false},
		"one that was compressed, arriving":   {memory.Arriving, strings.Repeat("a", memory.Small+1), true},
		"a small one, while others arrive":    {memory.Arriving, large[:memory.Small/4], false},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			takeAll(t, test.turns)
			ended := errors.New("the call's time is over")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ended)
			defer cancel()
			if !test.waits {
				ctx = t.Context()
			}
			text, err := answered(t, ctx, test.text)
			if test.waits && !errors.Is(err, ended) || !test.waits && (err != nil || string(text) != test.text) {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		}))
	}
}

// The turns of an answer last until the caller of Hold is done with it, but not after an error,
// and not until the next attempt's answer.
func TestTurnsLastAsLongAsTheAnswer(t *testing.T) { bubble(holdAnswers)(t) }

func holdAnswers(t *testing.T) {
	large := strings.Repeat("a", 1<<20)
	ctx, done := memory.Hold(t.Context())
	for range 3 { // attempts
		if _, err := answered(t, ctx, large); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := answered(t, short, large); err == nil {
		t.Error("two answers are held at once")
	}
	done()
	if _, err := answered(t, t.Context(), large); err != nil {
		t.Error(err)
	}
}
