package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestDroppedSessionsLoseNoEvent(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	edge := ngroktest.Start(t)
	e := startExecutor(t, harness.ExecutorConfig{Env: []string{
		"NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_NGROK_SERVER=" + edge.Addr, "COLAB_RELAY_NGROK_CA=" + edge.CAFile,
	}})
	beginning, a := begin(t, startHost(t, e.Ready.URL, harness.HostConfig{Env: []string{"RELAY_HOLD=2s"}}), untilStopped, "line 0\n")
	h := startHost(t, e.Ready.URL, harness.HostConfig{})
	want(t, call(t, h, "check_colab_connection", nil), map[string]any{"success": true})
	var drops sync.WaitGroup
	drops.Go(func() {
		for range 5 {
			logins := len(edge.Auths())
			edge.DropSessions()
			if err := harness.Poll(within.Context(t), func() (bool, error) { return len(edge.Auths()) > logins && edge.Online(edge.URL()), nil }); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(filepath.Join(e.Config.Dir, "stop"), nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	rest, last := follow(t, h, a.String("execution_id"), a.Int("next_offset"))
	drops.Wait()
	want(t, last, map[string]any{"status": "succeeded"})
	if got := beginning + rest; got != lines(strings.Count(got, "\n")) {
		t.Errorf("output across the drops = %q", got)
	}
}

func TestRefusedTokenEndsTheExecutorWithOneLine(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.RefuseToken("ERR_NGROK_105")
	_, err := harness.StartExecutor(within.Context(t), harness.ExecutorConfig{
		Binary: binaries.Executor, Python: stacks.Old(t).Python, Dir: t.TempDir(), Secret: secret,
		Env: []string{"NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_NGROK_SERVER=" + edge.Addr, "COLAB_RELAY_NGROK_CA=" + edge.CAFile},
	})
	if err == nil {
		t.Fatal("the executor became ready")
	}
	if !strings.Contains(err.Error(), "ERR_NGROK_105") || strings.Contains(err.Error(), "a-token-of-the-test") {
		t.Errorf("it ended with: %v", err)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	_, body := request(t, http.MethodGet, url, nil)
	return body
}

func request(t *testing.T, method, url string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within.Context(t), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
