package page

import (
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/within"
)

// controlled returns a Page with a control file, and the only page in its folder.
func controlled(t *testing.T) (*desk, *Other, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "page")
	d := newDesk(t, standin.Options{}, func(p *Page) { p.cfg.Dir = dir })
	d.connected()
	return d, only(t, dir), dir
}

func only(t *testing.T, dir string) *Other {
	t.Helper()
	others, err := ControlAll(dir)
	if err != nil || len(others) != 1 {
		t.Fatalf("%d pages, %v", len(others), err)
	}
	return others[0]
}

func TestControlFromAnotherProcess(t *testing.T) {
	d, other, dir := controlled(t)
	if other.PID != os.Getpid() || other.Port != d.State().Port {
		t.Errorf("the page is %+v", other)
	}
	state, err := other.Status(t.Context())
	if err != nil || !state.Connected || !state.ConnectedSince.Equal(d.State().ConnectedSince) || state.Port != other.Port {
		t.Errorf("the state is %+v, %v", state, err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	within.Until(t, "the page is closed", func() bool { return !d.State().Listening && !d.State().Connected })
	within.Until(t, "the control file is gone", func() bool { return len(entries(t, dir)) == 0 })
	if _, err := other.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "no longer listens") {
		t.Errorf("the state of a closed page: %v", err)
	}
	d.connected() // the process opens it again, with another secret
	if only(t, dir).secret == other.secret {
		t.Error("the secret is the same")
	}
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestControlFileIsPrivate(t *testing.T) {
	d, other, dir := controlled(t)
	path := filepath.Join(dir, strconv.Itoa(os.Getpid())+".json")
	content, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(content), other.secret) || strings.Contains(string(content), d.currentToken()) {
		t.Errorf("the control file is %s, %v", content, err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, dir: 0o700} {
		info, err := os.Stat(name)
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
		}
	}
	d.Close()
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("after Close there are %v", left)
	}
}

// Whoever does not show the secret, or is a browser, gets the answer of any other path.
func TestControlRefusesStrangers(t *testing.T) {
	d, other, _ := controlled(t)
	right := "Bearer " + other.secret
	status := func() attempt {
		return attempt{line: "GET /control/status HTTP/1.1", headers: []string{"Host: 127.0.0.1:PORT", "Authorization: " + right}}
	}
	closing := status()
	closing.line = "POST /control/close HTTP/1.1"
	for name, a := range map[string]attempt{
		"no secret":             status().with("Authorization"),
		"wrong secret":          status().with("Authorization", "Bearer x"),
		"the tab's token":       status().with("Authorization", "Bearer TOKEN"),
		"secret and more":       status().with("Authorization", right+"x"),
		"two secrets":           status().with("Authorization", right, right),
		"in the query":          {line: "GET /control/status?access_token=" + other.secret + " HTTP/1.1", headers: []string{"Host: localhost:PORT"}},
		"Colab's Origin":        status().with("Origin", "https://colab.research.google.com"),
		"null Origin":           status().with("Origin", "null"),
		"foreign Host":          status().with("Host", "evil.example:PORT"),
		"close, no secret":      closing.with("Authorization"),
		"close, Colab's Origin": closing.with("Origin", "https://colab.research.google.com"),
	} {
		t.Run(name, func(t *testing.T) {
			answer := d.try(t, a)
			defer answer.conn.Close()
			if answer.StatusCode != http.StatusForbidden {
				t.Errorf("the answer is %d", answer.StatusCode)
			}
			answer.checkRefusal(t, other.secret)
		})
	}
	if !d.State().Connected {
		t.Error("the page was closed")
	}
}
