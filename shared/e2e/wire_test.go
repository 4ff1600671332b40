package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func TestHealthHasTheOldBridgesFieldsAndLeaksNothing(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	var fields map[string]any
	if err := json.Unmarshal([]byte(get(t, e.Ready.LocalURL+"/health")), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status", "uptime_minutes", "memory_available_gb", "memory_used_pct", "version", "protocol"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if len(fields) != 6 {
		t.Errorf("health has %v", fields)
	}
}

func TestStrangersGetTheSameAnswerWhateverTheyAsk(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	requestID := regexp.MustCompile(`"request_id":"[^"]*"`)
	signed := func(input string) http.Header {
		return http.Header{"Signature-Input": {input}, "Signature": {"sig1=:AAAA:"}}
	}
	known := `sig1=("@method" "@path" "@query" "content-digest");created=1;nonce="AAAAAAAAAAAAAAAAAAAAAA";keyid="` + e.Ready.KeyID + `";alg="hmac-sha256";tag="colab-relay"`
	first := ""
	for _, c := range []struct {
		method, path string
		header       http.Header
	}{
		{"GET", "/v1/kernel", nil},
		{"GET", "/v1/executions/none", nil},
		{"POST", "/v1/executions", nil},
		{"DELETE", "/v1/executions", nil},
		{"GET", "/", nil},
		{"GET", "/nowhere", nil},
		{"GET", "/health/", nil},
		{"POST", "/health", nil},
		{"GET", "/v1/kernel", signed("garbage")},
		{"GET", "/v1/kernel", signed(known)},
		{"GET", "/v1/kernel", signed(strings.Replace(known, e.Ready.KeyID, "0123456789abcdef", 1))},
	} {
		status, body := request(t, c.method, e.Ready.LocalURL+c.path, c.header)
		body = requestID.ReplaceAllString(body, "")
		if first == "" {
			first = body
		}
		if status != http.StatusUnauthorized || body != first {
			t.Errorf("%s %s: %d %s; the first was %s", c.method, c.path, status, body, first)
		}
	}
}

// line is a proxy between relay and executor. It can lose the next answer to a submit.
type line struct {
	*httptest.Server
	mu      sync.Mutex
	target  *url.URL
	lose    bool
	submits int
}

func newLine(t *testing.T, target string) *line {
	t.Helper()
	u, err := url.Parse(target)
	must(t, err)
	l := &line{target: u}
	l.Server = httptest.NewServer(l)
	t.Cleanup(l.Close)
	return l
}

func (l *line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	lose := false
	if r.Method == http.MethodPost && r.URL.Path == "/v1/executions" {
		l.submits++
		lose, l.lose = l.lose, false
	}
	l.mu.Unlock()
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(l.target) }}
	if !lose {
		proxy.ServeHTTP(w, r)
		return
	}
	proxy.ServeHTTP(httptest.NewRecorder(), r) // the executor runs it, but the answer is lost
	panic(http.ErrAbortHandler)
}

func (l *line) loseNext() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.submits = true, 0
}

func (l *line) seen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.submits
}

func TestLostAnswerDoesNotRunTheCodeTwice(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		l := newLine(t, e.Ready.LocalURL)
		h := startHost(t, l.URL, harness.HostConfig{})
		quick(t, h, "n = 0")
		l.loseNext()
		want(t, quick(t, h, "n += 1\nprint('ran', n)"), map[string]any{"success": true, "stdout": "ran 1\n"})
		if n := l.seen(); n != 2 {
			t.Errorf("%d submits were sent", n)
		}
		want(t, quick(t, h, "n"), map[string]any{"result": "1"})
	})
}
