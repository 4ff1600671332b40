//go:build release

package main

// make verify runs these tests, which need node and npm.

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"colabrelay/shared/freeport"
)

// echo is the program of these tests' releases.
const echo = "#!/bin/sh\necho \"program ran: $*\"\n"

// npmStand is a release, the server that has it, and the package for all platforms, unpacked
// as npm does it.
type npmStand struct {
	t      *testing.T
	home   string
	folder string // of the package
	env    []string
	files  map[string][]byte
}

// newNpmStand returns one whose server is reached at address(url).
func newNpmStand(t *testing.T, address func(url string) string) *npmStand {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("install node: the package runs in it")
	}
	s := &npmStand{t: t, home: t.TempDir()}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.env = []string{"HOME=" + s.home, "PATH=" + filepath.Dir(node) + ":" + os.Getenv("PATH"), "npm_config_update_notifier=false", "npm_config_registry=http://127.0.0.1:9/"}
	r := sample("v1.2.3", address(server.URL)+"/r")
	r.relay["linux-"+runtime.GOARCH] = []byte(echo)
	s.files = madeOf(t, r)
	s.folder = s.home + "/some-relay"
	for name, file := range unpacked(t, "x.tgz", s.files["some-relay-1.2.3.tgz"]) {
		path := filepath.Join(s.folder, strings.TrimPrefix(name, "package/"))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, file.data, file.mode))
	}
	return s
}

func (s *npmStand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, ok := s.files[strings.TrimPrefix(r.URL.Path, "/r/v1.2.3/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(data)
}

// ourNpmFile is the name of the file for this platform.
func ourNpmFile() string {
	return "some-relay-linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH] + "-1.2.3.tgz"
}

// change replaces a text of the package's fetch.js.
func (s *npmStand) change(old, replacement string) {
	s.t.Helper()
	file := s.folder + "/bin/fetch.js"
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), old) {
		s.t.Fatalf("fetch.js has no %q: %v", old, err)
	}
	must(s.t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o600))
}

func (s *npmStand) run(name string, args ...string) (out, errs string, code int) {
	s.t.Helper()
	var o, e strings.Builder
	cmd := exec.CommandContext(s.t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.home, s.env, &o, &e
	_ = cmd.Run()
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

func (s *npmStand) launch(args ...string) (out, errs string, code int) {
	return s.run("node", append([]string{s.folder + "/bin/colab-relay.js"}, args...)...)
}

// Each failure is told once, with what to do instead, and is bounded.
func TestTheNpmPackageSaysWhyThereIsNoProgram(t *testing.T) {
	closed, err := freeport.Address()
	must(t, err)
	hanging := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path[:3] == "/st" {
			_, _ = w.Write([]byte("a piece"))
			w.(http.Flusher).Flush()
		}
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(hanging); silent.Close() })
	for name, c := range map[string]struct {
		address string
		change  [2]string
		says    string
	}{
		"refused":      {address: "http://" + closed, says: "ECONNREFUSED"},
		"another file": {change: [2]string{`-x64": "`, `-x64": "0`}, says: "it is not the file of this release: its SHA-256 is "},
		"silent":       {silent.URL, [2]string{"15_000", "100"}, "no answer within 0.1 s"},
		"too slow":     {silent.URL + "/st", [2]string{"300_000", "500"}, "it took longer than 0.5 s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newNpmStand(t, func(url string) string {
				if c.address != "" {
					return c.address
				}
				return url
			})
			if c.change[0] != "" {
				s.change(c.change[0], c.change[1])
			}
			out, errs, code := s.launch("version")
			if code != 69 || out != "" || strings.Count(errs, c.says) != 1 {
				t.Errorf("exit code %d, %q, %s", code, out, errs)
			}
			if !strings.Contains(errs, "Next step: ") || !strings.HasSuffix(errs, "npm install --global ./"+ourNpmFile()+"\n") {
				t.Errorf("it does not say what to do:\n%s", errs)
			}
		})
	}
}

// The download goes through a proxy, over TLS, to the host to which the release redirects, as
// GitHub does.
func TestTheNpmPackageUsesAProxyAndFollowsRedirectsOverTLS(t *testing.T) {
	var s *npmStand
	release := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, old := strings.CutPrefix(r.URL.Path, "/moved"); old {
			r.URL.Path = path
			s.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, "/moved"+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(release.Close)
	var connects []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		connects = append(connects, fmt.Sprintf("%s %s %s:%s", r.Method, r.Host, user, password))
		join(t, w, release.Listener.Addr().String())
	}))
	t.Cleanup(proxy.Close)
	s = newNpmStand(t, func(string) string { return "https://example.com" }) // which the test's certificate names
	certificate := s.home + "/certificate.pem"
	must(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: release.Certificate().Raw}), 0o600))
	s.env = append(s.env, "NODE_EXTRA_CA_CERTS="+certificate, "HTTPS_PROXY=http://me:p%40ss@"+proxy.Listener.Addr().String())
	if out, errs, code := s.launch("x"); out != "program ran: x\n" || code != 0 {
		t.Fatalf("exit code %d, %q, %s", code, out, errs)
	}
	if len(connects) != 2 || connects[0] != "CONNECT example.com:443 me:p@ss" {
		t.Errorf("the proxy got %q", connects)
	}
}

// join connects a proxy's client with an address.
func join(t *testing.T, w http.ResponseWriter, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	from, rest, err := w.(http.Hijacker).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(to, rest); to.Close() }()
	_, _ = io.Copy(from, to)
	from.Close()
}
