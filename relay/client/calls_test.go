package client

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

func TestCallsAskWhatTheContractSays(t *testing.T) {
	for name, c := range map[string]struct {
		call                      func(context.Context, *Client) error
		method, path, query, body string
	}{
		"probe":     {func(ctx context.Context, c *Client) error { _, err := c.Probe(ctx); return err }, "GET", "/v1/probe", "", ""},
		"kernel":    {func(ctx context.Context, c *Client) error { _, err := c.Kernel(ctx); return err }, "GET", "/v1/kernel", "", ""},
		"restart":   {func(ctx context.Context, c *Client) error { _, err := c.RestartKernel(ctx, "k-1"); return err }, "POST", "/v1/kernel/restart", "", `{"kernel_id":"k-1"}`},
		"variables": {func(ctx context.Context, c *Client) error { _, err := c.Variables(ctx); return err }, "GET", "/v1/variables", "", ""},
		"inspect":   {func(ctx context.Context, c *Client) error { _, err := c.Inspect(ctx, "a b&c"); return err }, "GET", "/v1/variables/inspect", "name=a+b%26c", ""},
		"cleanup":   {func(ctx context.Context, c *Client) error { _, err := c.Cleanup(ctx, "k-1"); return err }, "POST", "/v1/cleanup", "", `{"kernel_id":"k-1"}`},
		"files":     {func(ctx context.Context, c *Client) error { _, err := c.Files(ctx, "/content/ü?#"); return err }, "GET", "/v1/files", "path=%2Fcontent%2F%C3%BC%3F%23", ""},
		"list":      {func(ctx context.Context, c *Client) error { _, err := c.List(ctx, 20); return err }, "GET", "/v1/executions", "limit=20", ""},
		"list all":  {func(ctx context.Context, c *Client) error { _, err := c.List(ctx, 0); return err }, "GET", "/v1/executions", "", ""},
		"interrupt": {func(ctx context.Context, c *Client) error { _, err := c.Interrupt(ctx, "e-1"); return err }, "POST", "/v1/executions/e-1/interrupt", "", ""},
		"input": {func(ctx context.Context, c *Client) error {
			_, err := c.Input(ctx, "e-1", contract.Input{Text: "yes"})
			return err
		}, "POST", "/v1/executions/e-1/input", "", `{"text":"yes"}`},
		"input at": {func(ctx context.Context, c *Client) error {
			_, err := c.Input(ctx, "e-1", contract.Input{Text: "yes", Offset: new(int64), Password: true})
			return err
		}, "POST", "/v1/executions/e-1/input", "", `{"text":"yes","offset":0,"password":true}`},
		"shutdown": {func(ctx context.Context, c *Client) error { _, err := c.Shutdown(ctx); return err }, "POST", "/v1/shutdown", "", ""},
		"read": {func(ctx context.Context, c *Client) error {
			_, err := c.Execution(ctx, "e-1", 7, 1500*time.Millisecond, 0)
			return err
		}, "GET", "/v1/executions/e-1", "offset=7&wait_seconds=1.5", ""},
		"read bounded": {func(ctx context.Context, c *Client) error {
			_, err := c.Execution(ctx, "e-1", 0, time.Hour, 4096)
			return err
		}, "GET", "/v1/executions/e-1", "max_bytes=4096&offset=0&wait_seconds=50", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := newRunningExecutor(t)
			if err := c.call(t.Context(), e.acquainted(t)); err != nil {
				t.Fatal(err)
			}
			got := e.all()
			if len(got) != 1 {
				t.Fatalf("%d requests", len(got))
			}
			r := got[0]
			if diff := cmp.Diff([]string{c.method, c.path, c.query, c.body}, []string{r.method, r.path, r.query, string(r.body)}); diff != "" {
				t.Error(diff)
			}
			if h := got[0].header; h.Get(contract.HeaderSkipInterstitial) == "" {
				t.Errorf("headers %v", h)
			}
		})
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

func TestHealthIsUnsigned(t *testing.T) {
	e, _ := newRunningExecutor(t)
	e.setBefore(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Signature") != "" || r.Header.Get("Content-Digest") != "" {
			t.Error("signed")
		}
		return false
	})
	got, err := e.client(t).Health(t.Context())
	if err != nil || got.Status != "ok" || got.Version != "test" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestHealthOfAnotherProtocol(t *testing.T) {
	e, _ := newRunningExecutor(t)
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		writeJSON(w, http.StatusOK, contract.Health{Status: "ok", Protocol: contract.Protocol + 1, Version: "9.0"})
		return true
	})
	got, err := e.client(t).Health(t.Context())
	wantKind(t, err, KindWrongProtocol)
	if got.Version != "9.0" {
		t.Errorf("health %+v", got)
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
