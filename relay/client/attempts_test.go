package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// changing are the calls that change something on the VM.
var changing = map[string]struct {
	call  func(ctx context.Context, c *Client) error
	moves bool // continues on a new instance
	twice bool // may be tried again after a try that may have been accepted
}{
	"submit": {func(ctx context.Context, c *Client) error {
		_, err := c.Submit(ctx, contract.Submit{RequestID: "r", Code: "1"})
		return err
	}, true, true},
	"submit to one instance": {func(ctx context.Context, c *Client) error {
		_, err := c.SubmitTo(ctx, "instance-1", contract.Submit{RequestID: "r", Code: "1"})
		return err
	}, false, true},
	"start of an upload": {func(ctx context.Context, c *Client) error {
		_, err := c.StartUpload(ctx, contract.UploadStart{Path: "a"})
		return err
	}, true, true},
	"part": {func(ctx context.Context, c *Client) error {
		_, err := c.PutPart(ctx, "u", strings.NewReader("x"), contract.Range{Length: 1})
		return err
	}, false, false},
	"commit":    {func(ctx context.Context, c *Client) error { _, err := c.CommitUpload(ctx, "u", "s", 0); return err }, false, true},
	"interrupt": {func(ctx context.Context, c *Client) error { _, err := c.Interrupt(ctx, "e"); return err }, false, true},
	"restart":   {func(ctx context.Context, c *Client) error { _, err := c.RestartKernel(ctx, "k"); return err }, false, true},
	"input": {func(ctx context.Context, c *Client) error {
		_, err := c.Input(ctx, "e", contract.Input{Text: "x"})
		return err
	}, false, false},
	"input at a prompt": {func(ctx context.Context, c *Client) error {
		_, err := c.Input(ctx, "e", contract.Input{Text: "x", Offset: new(int64)})
		return err
	}, false, true},
	"cleanup":  {func(ctx context.Context, c *Client) error { _, err := c.Cleanup(ctx, "k"); return err }, false, false},
	"shutdown": {func(ctx context.Context, c *Client) error { _, err := c.Shutdown(ctx); return err }, false, false},
}

// intendedFor returns the executors that the received requests were signed for.
func (e *executor) intendedFor() []string {
	var out []string
	for _, r := range e.all() {
		if r.method != http.MethodGet {
			out = append(out, r.intendedFor())
		}
	}
	return out
}

func wantWhom(t *testing.T, e *executor, want ...string) {
	t.Helper()
	got := e.intendedFor()
	if len(got) != len(want) {
		t.Fatalf("signed for %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("signed for %q, want %q", got, want)
		}
	}
}

func anything(seen) (int, any) { return http.StatusOK, struct{}{} }

func TestEveryCallIsSignedAgainForANewStart(t *testing.T) {
	for name, c := range changing {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, anything)
			client := e.acquainted(t)
			e.becomes("instance-1/start-2")
			if err := c.call(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			wantWhom(t, e, "instance-1/start-1", "instance-1/start-2")
			first, second := e.all()[0], e.all()[1]
			if diff := cmp.Diff([]string{first.path, first.query, string(first.body)}, []string{second.path, second.query, string(second.body)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlySubmitsAndStartsOfUploadsContinueOnANewInstance(t *testing.T) {
	for name, c := range changing {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, anything)
			client := e.acquainted(t)
			e.becomes("instance-2/start-9")
			err := c.call(t.Context(), client)
			if client.InstanceID() != "instance-2" {
				t.Errorf("the client believes in %q", client.InstanceID())
			}
			if c.moves {
				if err != nil {
					t.Fatal(err)
				}
				wantWhom(t, e, "instance-1/start-1", "instance-2/start-9")
				return
			}
			wantCode(t, err, contract.CodeNewInstance)
			wantWhom(t, e, "instance-1/start-1")
		})
	}
}

// What the old VM, or the old start, may have done is not asked of the new one where
// that could do it twice.
func TestAfterALostAnswerNoCallContinuesOnANewInstance(t *testing.T) {
	tier.Long(t)
	for name, c := range changing {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, anything)
			client := e.acquainted(t)
			e.setAfter(first(func(w http.ResponseWriter) bool { e.becomes("instance-2/start-9"); hangUp(w); return true }))
			err := c.call(t.Context(), client)
			if !c.twice {
				wantKind(t, err, KindUnreachable)
				wantWhom(t, e, "instance-1/start-1")
				return
			}
			wantCode(t, err, contract.CodeNewInstance)
			wantWhom(t, e, "instance-1/start-1", "instance-1/start-1")
		})
	}
}

func TestAfterALostAnswerOnlyIdempotentCallsAreSentToANewStart(t *testing.T) {
	tier.Long(t)
	for name, c := range changing {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, anything)
			client := e.acquainted(t)
			e.setAfter(first(func(w http.ResponseWriter) bool { e.becomes("instance-1/start-2"); hangUp(w); return true }))
			err := c.call(t.Context(), client)
			if !c.twice {
				wantKind(t, err, KindUnreachable)
				wantWhom(t, e, "instance-1/start-1")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantWhom(t, e, "instance-1/start-1", "instance-1/start-1", "instance-1/start-2")
		})
	}
}

// Other calls hear of a new VM while this one is under way.
func TestACallKeepsTheInstanceOfItsFirstTry(t *testing.T) {
	tier.Long(t)
	for name, c := range changing {
		if !c.twice {
			continue
		}
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, anything)
			client := e.acquainted(t)
			e.setAfter(first(func(w http.ResponseWriter) bool {
				client.instance.Store(&contract.Instance{ID: "instance-2", Start: "start-9"})
				hangUp(w)
				return true
			}))
			if err := c.call(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			wantWhom(t, e, "instance-1/start-1", "instance-1/start-1")
		})
	}
}

func TestAStartThatChangesAgainAndAgainEnds(t *testing.T) {
	e := newExecutor(t, anything)
	client := e.acquainted(t)
	n := 'a'
	e.setBefore(func(http.ResponseWriter, *http.Request) bool {
		n++
		e.becomes("instance-1/start-" + string(n))
		return false
	})
	_, err := client.Input(t.Context(), "e", contract.Input{Text: "x"})
	wantCode(t, err, contract.CodeNewStart)
	if got := len(e.intendedFor()); got != 2 {
		t.Errorf("%d tries", got)
	}
}

// A refusal by rate_limited that tells the time may stand in the place of any other. The
// next try has time and start right; but the first may have been a replay, whose
// original was accepted, so a call that must not be done twice is not tried again.
func TestARateLimitedRefusalReportsTimeAndStart(t *testing.T) {
	tier.Long(t)
	for name, c := range changing {
		t.Run(name, func(t *testing.T) {
			now := func() time.Time { return time.Now().Add(-time.Hour) }
			e := newExecutorAt(t, now, anything)
			client := e.acquainted(t)
			client.setClock(time.Now()) // as if the VM's clock had been put back since
			e.becomes("instance-1/start-2")
			limitFirst(e)
			err := c.call(t.Context(), client)
			if !c.twice {
				wantCode(t, err, contract.CodeRateLimited)
				err = c.call(t.Context(), client)
			}
			if err != nil {
				t.Fatal(err)
			}
			wantWhom(t, e, "instance-1/start-2")
		})
	}
}

// limitFirst has e answer its next request as an executor does past its limit of refusals.
func limitFirst(e *executor) {
	limited := 0
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if limited++; limited > 1 {
			return false
		}
		answer := httptest.NewRecorder()
		body := refusalBody(contract.CodeRateLimited)
		body.Error.ServerTime = e.now().Unix()
		x, _, _ := e.served().Open(r)
		sealAnswer(e.served(), answer, r, x, http.StatusTooManyRequests, body)
		send(w, answer)
		return true
	})
}

func TestAPinnedSubmitFindsItsInstanceUnderAnUnknownStart(t *testing.T) {
	e, runs := newRunningExecutor(t)
	client := e.acquainted(t)
	client.instance.Store(&contract.Instance{ID: "instance-2", Start: "start-9"}) // of a VM that is gone again
	if _, err := client.SubmitTo(t.Context(), "instance-1", contract.Submit{RequestID: "r", Code: "1"}); err != nil {
		t.Fatal(err)
	}
	wantWhom(t, e, "instance-1/start-9", "instance-1/start-1")
	if runs.ran["r"] != 1 {
		t.Errorf("ran %v", runs.ran)
	}
}

func TestGETsNameNoExecutor(t *testing.T) {
	e := newExecutor(t, anything)
	if _, err := e.acquainted(t).Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := e.all()[0].intendedFor(); got != "" {
		t.Errorf("signed for %q", got)
	}
}

func TestCurrentKernelWaitsForOneThatStarts(t *testing.T) {
	tier.Long(t)
	asked := 0
	e := newExecutor(t, func(seen) (int, any) {
		if asked++; asked < 9 { // more often than a request is repeated
			return http.StatusOK, contract.Kernel{Status: contract.KernelStarting}
		}
		return http.StatusOK, contract.Kernel{Status: contract.KernelIdle, KernelID: "k"}
	})
	if k, err := e.client(t).CurrentKernel(t.Context()); err != nil || k.KernelID != "k" || asked != 9 {
		t.Errorf("%+v, %v after %d tries", k, err, asked)
	}
	e.respond = func(seen) (int, any) { return http.StatusOK, contract.Kernel{Status: contract.KernelDead} }
	_, err := e.client(t).CurrentKernel(t.Context())
	wantCode(t, err, contract.CodeKernelDead)
}

func TestKernelRefIsWrittenWhole(t *testing.T) {
	for _, id := range []string{"", "k-1", `"`, "ä"} {
		var ref contract.KernelRef
		if err := json.Unmarshal(encode(contract.KernelRef{KernelID: id}), &ref); err != nil || ref.KernelID != id {
			t.Errorf("%q became %+v, %v", id, ref, err)
		}
	}
}
