package client

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
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
	"job": {func(ctx context.Context, c *Client) error {
		_, err := c.SubmitJob(ctx, contract.JobSubmit{JobID: "j"})
		return err
	}, true, true},
	"job to one instance": {func(ctx context.Context, c *Client) error {
		_, err := c.SubmitJobTo(ctx, "instance-1", contract.JobSubmit{JobID: "j"})
		return err
	}, false, true},
	"patch of a job": {func(ctx context.Context, c *Client) error {
		_, err := c.PatchJob(ctx, "instance-1", "j", contract.JobPatch{PatchID: "p"})
		return err
	}, false, true},
	"end of a job": {func(ctx context.Context, c *Client) error {
		_, err := c.DeleteJob(ctx, "instance-1", "j", true)
		return err
	}, false, true},
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
	for name, c := range changing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newExecutor(t, anything)
			client := e.acquainted(t)
			e.setAfter(first(func(w http.ResponseWriter) bool {
				e.becomes("instance-2/start-9")
				client.instance.Store(&contract.Instance{ID: "instance-2", Start: "start-9"}) // as another call would
				hangUp(w)
				return true
			}))
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
