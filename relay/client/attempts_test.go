package client

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		_, err := c.StartUpload(ctx, contract.UploadStart{Path: "a"}, 0)
		return err
	}, true, true},
	"job to one instance": {func(ctx context.Context, c *Client) error {
		_, err := c.SubmitJobTo(ctx, "instance-1", contract.JobSubmit{JobID: "j"})
		return err
	}, false, true},
	"patch of a job": {func(ctx context.Context, c *Client) error {
		_, err := c.PatchJob(ctx, "instance-1", "j", contract.JobPatch{})
		return err
	}, false, true},
	"end of a job": {func(ctx context.Context, c *Client) error {
		_, err := c.DeleteJob(ctx, "instance-1", "j", true)
		return err
	}, false, true},
	"part": {func(ctx context.Context, c *Client) error {
		return c.PutPart(ctx, "u", strings.NewReader("x"), contract.Range{Length: 1})
	}, false, false},
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
	"cleanup": {func(ctx context.Context, c *Client) error { _, err := c.Cleanup(ctx, "k"); return err }, false, false},
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
			must(t, c.call(t.Context(), client))
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
				must(t, err)
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

// Something on the way sent the request twice and lost the first answer.
func TestReplayedInputIsNotSentAgain(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.acquainted(t)
	e.respond = func(seen) (int, any) { return http.StatusServiceUnavailable, refusalBody(contract.CodeReplayed) }
	_, err := c.Input(t.Context(), "e", contract.Input{Text: "x"})
	wantCode(t, err, contract.CodeReplayed)
	if got := len(e.all()); got != 1 {
		t.Errorf("%d requests", got)
	}
}

// The request that was repeated may have been executed: the call's time is over, which is no
// refusal.
func TestReplayedUntilTheTimeIsOverIsATimeout(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.acquainted(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	var tries atomic.Int32
	e.respond = func(seen) (int, any) {
		if tries.Add(1) == 2 {
			cancel(context.DeadlineExceeded)
		}
		return http.StatusServiceUnavailable, refusalBody(contract.CodeReplayed)
	}
	_, err := c.Submit(ctx, contract.Submit{RequestID: "r", Code: "1"})
	if wantKind(t, err, KindTimeout); refusal(err) != nil || !MayHaveArrived(err) {
		t.Errorf("%v is a refusal, or says that nothing arrived", err)
	}
}

func TestClockOffByAnHourIsCorrectedOnce(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			e := newExecutorAt(t, func() time.Time { return time.Now().Add(off) }, func(seen) (int, any) { return 200, struct{}{} })
			e.setBefore(func(http.ResponseWriter, *http.Request) bool { requests.Add(1); return false })
			c := e.client(t)
			for range 2 {
				if _, err := c.Kernel(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := requests.Load(); got != 3 {
				t.Errorf("%d requests for two calls, want one more for the correction", got)
			}
		})
	}
}

func TestSignedAnswerOfAnotherReleaseIsReported(t *testing.T) {
	for name, respond := range map[string]func(seen) (int, any){
		"no JSON":         func(seen) (int, any) { return 200, []byte("<html>") },
		"other types":     func(seen) (int, any) { return 200, []byte(`{"kernel_id":1}`) },
		"error, no code":  func(seen) (int, any) { return 500, struct{}{} },
		"redirect, ours?": func(seen) (int, any) { return 302, struct{}{} },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newExecutor(t, respond).client(t).Kernel(t.Context())
			wantKind(t, err, KindWrongProtocol)
		})
	}
}

func TestConnectionTheTransportGaveUpDoesNotCountAsSent(t *testing.T) {
	var sent atomic.Bool
	trace := httptrace.ContextClientTrace(traceSent(t.Context(), &sent))
	trace.GetConn("host")
	trace.GotConn(httptrace.GotConnInfo{Reused: true}) // dead: nothing could be written
	if !sent.Load() {
		t.Error("a request on a connection counts as unsent")
	}
	trace.GetConn("host")
	if sent.Load() {
		t.Error("waiting for another connection counts as sent")
	}
}

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

// refusesSubmits refuses submits with a code, and nothing else.
func refusesSubmits(code contract.Code) func(seen) (int, any) {
	return func(r seen) (int, any) {
		if r.method == http.MethodPost {
			return http.StatusServiceUnavailable, refusalBody(code)
		}
		return http.StatusOK, struct{}{}
	}
}

// A caller that takes a refusal for the outcome may run the code again.
func TestARefusalDoesNotHideAnUnansweredSubmit(t *testing.T) {
	for name, test := range map[string]struct {
		code             contract.Code
		unanswered, last int32
	}{
		"the first attempt":                  {contract.CodeQueueFull, 1, 3},
		"the last attempt":                   {contract.CodeQueueFull, 2, 2},
		"before one that is not tried again": {contract.CodeLowMemory, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var attempts atomic.Int32
			e := newExecutor(t, refusesSubmits(test.code))
			c := e.acquainted(t)
			e.setAfter(func(w http.ResponseWriter, _ *httptest.ResponseRecorder) bool {
				n := attempts.Add(1)
				if n == test.last {
					cancel()
				}
				if n == test.unanswered {
					hangUp(w)
				}
				return n == test.unanswered
			})
			_, err := c.Submit(ctx, contract.Submit{RequestID: "once", Code: "1"})
			wantKind(t, err, KindTimeout)
			if !MayHaveArrived(err) || !strings.Contains(err.Error(), string(test.code)+": refused") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNewInstanceOnARetryIsReturnedAndNothingRuns(t *testing.T) {
	e, runs := newRunningExecutor(t)
	c := e.client(t)
	if _, err := c.Kernel(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.setAfter(first(func(w http.ResponseWriter) bool { e.becomes("instance-2/start-9"); hangUp(w); return true }))
	_, err := c.Submit(t.Context(), contract.Submit{RequestID: "once", Code: "1"})
	wantCode(t, err, contract.CodeNewInstance)
	if got := len(e.submits()); got != 2 || len(runs.ran) != 1 {
		t.Errorf("%d submits, ran %v", got, runs.ran)
	}
	// Later submits mean the new one.
	if _, err := c.Submit(t.Context(), contract.Submit{RequestID: "later", Code: "1"}); err != nil {
		t.Fatal(err)
	}
	if submits := e.submits(); submits[2].intendedFor() != "instance-2/start-9" || len(submits) != 3 {
		t.Errorf("submits %+v", submits)
	}
}

func TestIDsThatNoExecutorMadeAreNotAskedFor(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.client(t)
	for _, id := range []string{"", "..", ".", "../../shutdown", "a/b", "a?b", "a%2fb", "ü", strings.Repeat("a", 129)} {
		_, err := c.Execution(t.Context(), id, 0, 0, 0)
		wantCode(t, err, contract.CodeNotFound)
		_, err = c.Interrupt(t.Context(), id)
		wantCode(t, err, contract.CodeNotFound)
		_, err = c.Input(t.Context(), id, contract.Input{Text: "x"})
		wantCode(t, err, contract.CodeNotFound)
		wantCode(t, c.Blob(t.Context(), id, contract.Blob{Number: 1, SHA256: strings.Repeat("0", 64)}, io.Discard), contract.CodeNotFound)
	}
	sum := strings.Repeat("0", 64)
	// Number 0 is a reference by an executor of an earlier release.
	for _, blob := range []contract.Blob{{Number: 1, SHA256: "../x"}, {Number: 1}, {SHA256: sum}, {Number: -1, SHA256: sum}, {Number: contract.MaxBlobs + 1, SHA256: sum}} {
		wantCode(t, c.Blob(t.Context(), "e-1", blob, io.Discard), contract.CodeNotFound)
	}
	if got := e.all(); len(got) != 0 {
		t.Errorf("asked %+v", got)
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	secret := testSecret(t, testKey)
	for _, text := range []string{"", "example.com", "ftp://example.com", "https://", "https://u:p@example.com", "https://example.com/x", "https://example.com/?a", "https://example.com/#a", "https://exa mple.com:x"} {
		if _, err := New(Config{BaseURL: text, Secret: secret}); err == nil {
			t.Errorf("%q accepted", text)
		}
	}
	if _, err := New(Config{BaseURL: "https://example.com"}); err == nil {
		t.Error("no secret accepted")
	}
	for _, text := range []string{"http://127.0.0.1:8000", "https://example.com/", "https://[::1]:8000"} {
		if _, err := New(Config{BaseURL: text, Secret: secret}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLogsHoldNoBodiesQueriesOrKeys(t *testing.T) {
	e, _ := newRunningExecutor(t)
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(lockedWriter{&mu, &out}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := newClient(t, Config{BaseURL: e.URL, Secret: testSecret(t, testKey), Log: log})
	if _, err := c.Submit(t.Context(), contract.Submit{Code: "password = 'hunter2'"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Inspect(t.Context(), "hunter2"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if text := out.String(); strings.Contains(text, "hunter2") || strings.Contains(text, testKey) || strings.Count(text, "\n") < 3 {
		t.Errorf("log:\n%s", text)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
