package vm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/vm"
	"colabrelay/shared/within"
)

// lying is a backend whose VM answers the calls of launch.py itself.
type lying struct {
	vm.Backend
	answers map[string]string // JSON by function; none runs the real one
}

var marked = regexp.MustCompile(`functions\['call'\]\("(colab-relay [A-Z0-9]+ )", "(\w+)"`)

func (l lying) Exec(ctx context.Context, id, code string, timeout time.Duration) (string, error) {
	call := marked.FindStringSubmatch(code)
	answer, ok := l.answers[call[2]]
	if !ok {
		return l.Backend.Exec(ctx, id, code, timeout)
	}
	return "noise\n" + call[1] + answer + "\nnoise", nil
}

// A VM may run anybody's code, so what it says is outside text, and its addresses prove nothing.
func TestHostileAnswersOfAVM(t *testing.T) {
	t.Parallel()
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"ok"}`) }))
	t.Cleanup(stranger.Close)
	escape := `\u001b]0;title\u0007\u202e` + strings.Repeat("x", 100_000)
	prepared := `{"folder":"/tmp/ID","machine":"x86_64","sha256":"0","cloudflared":true}`
	ready := func(url, local string) map[string]string {
		return map[string]string{"prepare": prepared, "start": `{"pid":1}`, "poll": `{"running":true,"ready":{"url":` + quoted(url) + `,"local_url":` + quoted(local) + `}}`}
	}
	for name, answers := range map[string]map[string]string{
		"no JSON":             {"prepare": "{"},
		"another folder":      {"prepare": `{"folder":"/etc","machine":"x86_64"}`},
		"another processor":   {"prepare": `{"folder":"/tmp/ID","machine":"` + escape + `"}`},
		"an endless log":      {"prepare": prepared, "start": `{"pid":1}`, "poll": `{"running":false,"log":"` + escape + `"}`},
		"a stranger's URL":    ready(stranger.URL, "http://127.0.0.1:8000"),
		"a URL with escapes":  ready("http://127.0.0.1/\x1b]0;title\x07", "http://127.0.0.1:8000"),
		"a port of no number": ready(stranger.URL, "http://127.0.0.1:99999"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLaptop(t)
			l.cfg.NgrokToken = "t"
			l.cfg.Program = func(context.Context, string) (vm.Program, error) { return vm.Program{SHA256: "0"}, nil }
			b := &uploading{Backend: l.cloud, t: t}
			l.backend = b
			b.exec = lying{l.cloud, answers}
			m := l.process()
			m.Hurry(time.Minute, 100*time.Millisecond)
			_, err := m.Up(within.Context(t), vm.Request{Way: vm.Ngrok}, l.say)
			if err == nil {
				t.Fatal("it was believed")
			}
			if _, err := l.cfg.Pairings.Get(vm.DefaultName); err == nil {
				t.Error("it was paired")
			}
			all, err2 := m.List(t.Context())
			for _, text := range []string{strings.Join(l.said, "\n"), fmt.Sprint(all), err.Error()} {
				if strings.ContainsAny(text, "\x1b\x07\u202e") || len(text) > 50_000 {
					t.Errorf("%.200q, %v", text, err2)
				}
			}
		})
	}
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string can always be encoded
	return string(text)
}

// uploading takes uploads without a VM's folder, and replaces ID in answers.
type uploading struct {
	vm.Backend
	exec lying
	t    *testing.T
}

func (*uploading) Upload(context.Context, string, string, []byte) error { return nil }

func (u *uploading) Exec(ctx context.Context, id, code string, timeout time.Duration) (string, error) {
	out, err := u.exec.Exec(ctx, id, code, timeout)
	return strings.ReplaceAll(out, "/ID", "/"+id), err
}

func TestTheReleasesExecutorIsKeptAndVerified(t *testing.T) {
	t.Parallel()
	content, other := "the executor", "another file"
	var served atomic.Value
	served.Store(content)
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		fmt.Fprint(w, served.Load())
	}))
	t.Cleanup(s.Close)
	cache := filepath.Join(t.TempDir(), "cache")
	release := bootstrap.Release{Releases: s.URL, Version: "v1", SHA256AMD64: vm.DigestOf([]byte(content))}
	p, err := vm.ReleaseProgram(release, "amd64", cache)
	if err != nil || p.SHA256 != release.SHA256AMD64 {
		t.Fatal(p, err)
	}
	get := func() (string, error) { got, err := p.Content(t.Context()); return string(got), err }
	for range 2 {
		if got, err := get(); err != nil || got != content || requests.Load() != 1 {
			t.Errorf("%q, %v, %d requests", got, err, requests.Load())
		}
	}
	kept, _ := filepath.Glob(cache + "/*")
	if len(kept) != 1 {
		t.Fatal(kept)
	}
	if err := os.WriteFile(kept[0], []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := get(); err != nil || got != content || requests.Load() != 2 {
		t.Errorf("a changed copy: %q, %v, %d requests", got, err, requests.Load())
	}
	served.Store(other)
	if err := os.Remove(kept[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); err == nil || !strings.Contains(err.Error(), "SHA-256 differs") {
		t.Errorf("another file: %v", err)
	}
	if left, _ := filepath.Glob(cache + "/*"); len(left) > 0 {
		t.Errorf("another file was kept: %q", left)
	}
}
