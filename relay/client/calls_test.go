package client

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/contract"
)

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
