package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/contract"
)

// Under WithPatience a call ends once its attempts have failed for so long. A refusal is a sign of
// life, and starts the time anew.
func TestACallUnderPatienceEndsWhenNothingAnswers(t *testing.T) {
	const limit = 10 * time.Second
	refusals := func(every int) func(n int) error {
		return func(n int) error {
			if every > 0 && n%every == 0 {
				return &contract.Error{Code: contract.CodeKernelStarting, Message: "starting"}
			}
			return &Error{Kind: KindUnreachable, Message: "broken", sent: true}
		}
	}
	for name, test := range map[string]struct {
		attempt     func(n int) error
		least, most time.Duration
	}{
		"each attempt fails":         {refusals(0), limit, limit + 100*time.Millisecond},
		"a refusal now and then":     {refusals(2), 5 * time.Minute, 6 * time.Minute}, // the end of the caller's time
		"the executor always starts": {refusals(1), 5 * time.Minute, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, Config{BaseURL: "http://x.test", Secret: testSecret(t, testKey)})
				ctx, cancel := context.WithTimeout(WithPatience(t.Context(), limit), 5*time.Minute+30*time.Second)
				defer cancel()
				began, n := time.Now(), 0
				_, err := c.retry(ctx, idempotent, func() (answer, error) { n++; return answer{}, test.attempt(n) })
				if took := time.Since(began); err == nil || took < test.least || took > test.most {
					t.Errorf("it ended after %s and %d attempts: %v", took, n, err)
				}
			})
		})
	}
}
