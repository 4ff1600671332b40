package line_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/memory"
)

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
