package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

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
