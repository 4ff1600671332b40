package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

func TestBootstrapFillsTheCellIn(t *testing.T) {
	dir := home(t)
	amd, arm := strings.Repeat("a", 64), strings.Repeat("b", 64)
	sums := amd + "  executor-linux-amd64\n" + arm + "  executor-linux-arm64\n" + amd + "  relay-linux-amd64\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved/v1.0.0/SHA256SUMS":
			http.Redirect(w, r, "/r/v1.0.0/SHA256SUMS", http.StatusFound)
		case "/r/v1.0.0/SHA256SUMS":
			w.Write([]byte(sums))
		case "/r/v1.0.1/SHA256SUMS":
			w.Write([]byte(amd + "  executor-linux-amd64\n"))
		case "/r/v1.0.2/SHA256SUMS":
			w.Write([]byte("<html>none"))
		case "/r/v1.0.3/SHA256SUMS":
			w.Write(make([]byte, maxSums+1))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(dir, "SHA256SUMS")
	write(t, file, []byte(sums))
	for _, c := range []struct {
		stdin string
		args  []string
		note  bool
	}{
		{"", []string{"--releases", s.URL + "/r/", "--version", "v1.0.0"}, true},
		{"", []string{"--releases", s.URL + "/moved", "--version", "v1.0.0"}, true},
		{"", []string{"--releases", "https://x.example/r", "--version", "v1.0.0", "--sums", file}, false},
		{sums, []string{"--releases", "https://x.example/r", "--version", "v1.0.0", "--sums", "-", "--notebook"}, false},
	} {
		code, out, errs := relay(t, environ(), c.stdin, append([]string{"bootstrap"}, c.args...)...)
		if code != 0 || !strings.Contains(out, amd) || !strings.Contains(out, arm) || !strings.Contains(out, "v1.0.0") || strings.Contains(out, "@VERSION@") {
			t.Errorf("%v: %d %q %q", c.args, code, out, errs)
		}
		if c.note != strings.Contains(errs, "over http") {
			t.Errorf("%v says %q", c.args, errs)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"--version v1.0.0", "--releases"},
		{"--releases " + s.URL + "/r", "--version"},
		{"--releases " + s.URL + "/r --version v9", "404"},
		{"--releases " + s.URL + "/r --version v1.0.1", "64 hex digits"},
		{"--releases " + s.URL + "/r --version v1.0.2", "no executor is among them"},
		{"--releases " + s.URL + "/r --version v1.0.3", "longer than"},
		{"--releases http://127.0.0.1:1 --version v1.0.0", "refused"},
		{"--releases https://x.example --version v1.0.0 --sums none", "none"},
	} {
		code, out, errs := relay(t, environ(), "", append([]string{"bootstrap"}, strings.Fields(c.args)...)...)
		if last := errs[strings.LastIndex(strings.TrimSpace(errs), "\n")+1:]; code != 1 || out != "" || !strings.Contains(last, c.want) {
			t.Errorf("%s: %d %q %q", c.args, code, out, errs)
		}
	}
}
