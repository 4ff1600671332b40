package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"colabrelay/relay/config/configtest"
)

func TestExecutorRelease(t *testing.T) {
	sums := strings.Repeat("a", 64) + "  executor-linux-amd64\n" + strings.Repeat("b", 64) + "  executor-linux-arm64\n"
	files := map[string]string{"/r/v1.2.3/SHA256SUMS": sums, "/r/half/SHA256SUMS": sums[:strings.Index(sums, "\n")+1], "/r/huge/SHA256SUMS": strings.Repeat("x", MaxSums+1)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, found := files[r.URL.Path]
		if !found {
			http.NotFound(w, r)
		}
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	for folder, fault := range map[string]string{
		server.URL + "/r/v1.2.3":  "",
		server.URL + "/r/v1.2.3/": "",
		server.URL + "/r/half":    "lists no executor-linux-arm64",
		server.URL + "/r/huge":    "too long",
		server.URL + "/r/none":    "404",
		"http://example.org/r/v1": "use an https:// URL",
		"v1":                      "use an https:// URL",
		"file:///r/v1":            "use an https:// URL",
		"":                        releaseVariable,
	} {
		got, err := executorRelease(t.Context(), configtest.Environ(releaseVariable, folder))
		switch {
		case fault == "" && (err != nil || got.Releases != server.URL+"/r" || got.Version != "v1.2.3" || got.SHA256AMD64 != strings.Repeat("a", 64)):
			t.Errorf("%q: %+v, %v", folder, got, err)
		case fault != "" && (err == nil || !strings.Contains(err.Error(), fault)):
			t.Errorf("%q: error %v, want %q", folder, err, fault)
		}
	}
}
