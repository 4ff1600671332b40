package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func isRead(m message) bool {
	return m.method == http.MethodGet && strings.HasPrefix(m.path, contract.PathExecutions+"/")
}

// The operator answers each poll of a run with another poll's answer. What the relay returns
// is complete and in order, whatever it refused meanwhile.
func TestAnswersThatAreLateOrRepeatedLoseAndDoubleNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "5s")
	for what, give := range map[string]func(past []message) message{
		"the one before":     func(past []message) message { return past[max(0, len(past)-2)] },
		"the first one":      func(past []message) message { return past[0] },
		"every other twice":  func(past []message) message { return past[(len(past)-1)/2*2] },
		"the one in between": func(past []message) message { return past[len(past)/2] },
	} {
		code := u.another(counting(60, 0.1))
		var a harness.Answer
		must(t, harness.Poll(within.Context(t), func() (bool, error) { // the same call finds the same run
			a = call(t, u.host, "run_code_long", map[string]any{"code": code})
			return a.String("execution_id") != "", nil
		}))
		id, stdout, offset := a.String("execution_id"), a.String("stdout"), a.Int("next_offset")
		var past []message
		others := 0 // answers that were not those to the request
		u.tamper(isRead, func(m *middleman, request message) message {
			past = append(past, m.forward(request))
			given := give(past)
			if !slices.Equal(given.body, past[len(past)-1].body) {
				others++
			}
			return given
		})
		for range 4 {
			a := call(t, u.host, "get_execution", map[string]any{"execution_id": id, "offset": offset, "wait_seconds": 1})
			if !a.IsError {
				stdout, offset = stdout+a.String("stdout"), a.Int("next_offset")
				continue
			}
			if a.Error() != "bad_answer" {
				t.Errorf("%s: %s", what, a.Text)
			}
		}
		u.tamper(nil, nil)
		rest, last := follow(t, u.host, id, offset)
		want(t, last, map[string]any{"status": "succeeded"})
		if got := stdout + rest; got != lines(60) || others == 0 {
			t.Errorf("%s: after %d answers to other requests the output is %q", what, others, got)
		}
	}
}
