package e2e

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// viaEdge starts an executor behind the loopback ngrok edge.
func viaEdge(t *testing.T, edge *ngroktest.Edge, s stacks.Stack) *harness.Executor {
	t.Helper()
	return startExecutor(t, harness.ExecutorConfig{Python: s.Python, Env: []string{
		"NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_NGROK_SERVER=" + edge.Addr, "COLAB_RELAY_NGROK_CA=" + edge.CAFile,
	}})
}

func TestDroppedSessionsLoseNoEvent(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	edge := ngroktest.Start(t)
	e := viaEdge(t, edge, stacks.Old(t))
	h := startHost(t, e.Ready.URL, harness.HostConfig{Env: []string{"RELAY_HOLD=2s"}})
	beginning, a := begin(t, h, countingAfter("dropped", 80, 0.1), "line 0\n")
	ctx, cancel := context.WithCancel(t.Context())
	dropped := make(chan int)
	go func() {
		n := 0
		tick := time.NewTicker(700 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				edge.DropSessions()
				if n++; n == 1 {
					_ = os.WriteFile(filepath.Join(e.Config.Dir, "dropped"), nil, 0o600)
				}
			case <-ctx.Done():
				dropped <- n
				return
			}
		}
	}()
	rest, last := follow(t, h, a.String("execution_id"), a.Int("next_offset"))
	cancel()
	if n := <-dropped; n < 3 {
		t.Errorf("only %d sessions were dropped", n)
	}
	want(t, last, map[string]any{"status": "succeeded"})
	if got := beginning + rest; got != lines(80) {
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
