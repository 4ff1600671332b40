package page

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

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
	if other.PID != os.Getpid() || other.Port != d.State().Port || time.Since(other.Started) > time.Minute {
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

// A second request to close, handled late, leaves the next connection alone.
func TestStopOfAnEarlierServer(t *testing.T) {
	d, _, _ := controlled(t)
	earlier := d.server
	d.stop(earlier)
	d.connected()
	d.stop(earlier)
	if state := d.State(); !state.Listening || !state.Connected {
		t.Errorf("the state is %+v", state)
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
	withBody := status().with("Content-Length", "1")
	withBody.body = "x"
	closing := status()
	closing.line = "POST /control/close HTTP/1.1"
	for name, a := range map[string]attempt{
		"no secret":             status().with("Authorization"),
		"wrong secret":          status().with("Authorization", "Bearer x"),
		"the tab's token":       status().with("Authorization", "Bearer TOKEN"),
		"secret alone":          status().with("Authorization", other.secret),
		"secret and more":       status().with("Authorization", right+"x"),
		"lower case":            status().with("Authorization", "bearer "+other.secret),
		"two secrets":           status().with("Authorization", right, right),
		"in the query":          {line: "GET /control/status?access_token=" + other.secret + " HTTP/1.1", headers: []string{"Host: localhost:PORT"}},
		"Colab's Origin":        status().with("Origin", "https://colab.research.google.com"),
		"our Origin":            status().with("Origin", "http://127.0.0.1:PORT"),
		"null Origin":           status().with("Origin", "null"),
		"empty Origin":          status().with("Origin", ""),
		"foreign Host":          status().with("Host", "evil.example:PORT"),
		"absolute target":       {line: "GET http://localhost:PORT/control/status HTTP/1.1", headers: status().headers},
		"body":                  withBody,
		"close, no secret":      closing.with("Authorization"),
		"close, Colab's Origin": closing.with("Origin", "https://colab.research.google.com"),
		"close, foreign Host":   closing.with("Host", "evil.example"),
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
	for name, a := range map[string]attempt{
		"other path":   {line: "GET /control/x HTTP/1.1", headers: status().headers},
		"other method": {line: "GET /control/close HTTP/1.1", headers: status().headers},
		"post status":  {line: "POST /control/status HTTP/1.1", headers: status().headers},
	} {
		if answer := d.try(t, a); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s with the secret: %d", name, answer.StatusCode)
		}
	}
	if !d.State().Connected {
		t.Error("the page was closed")
	}
}

func TestControlFilesOfDeadProcesses(t *testing.T) {
	d, other, dir := controlled(t)
	write := func(name string, file controlFile) string {
		t.Helper()
		content, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	stale := []string{
		write("11.json", controlFile{PID: 11, Port: portOf(closed), Secret: "x"}),
		write("12.json", controlFile{PID: 12, Port: other.Port, Secret: "of the process that had this port before"}),
	}
	kept := []string{
		write("13.json", controlFile{PID: 13, Port: 70_000, Secret: "x"}),
		write("notes.json", controlFile{PID: 14, Port: 1, Secret: "x"}),
		write("0.json", controlFile{PID: 15, Port: 1, Secret: "x"}),
		write("16.json", controlFile{PID: 16, Port: 1, Secret: strings.Repeat("x", maxControlFile)}),
	}
	if got := only(t, dir); got.PID != os.Getpid() {
		t.Errorf("the page is %+v", got)
	}
	for _, path := range stale {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there", path)
		}
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s is not a control file, but: %v", path, err)
		}
	}
	d.Close()
}

// A program that took the port of a process that ended can neither stall nor flood us.
func TestControlOfAnotherProgram(t *testing.T) {
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	flood, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	go func() {
		conn, err := flood.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, err = conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
		for err == nil {
			_, err = conn.Write(make([]byte, 1<<20))
		}
	}()
	for name, l := range map[string]net.Listener{"silent": silent, "flood": flood} {
		o := &Other{PID: 1, Port: portOf(l), secret: "x"}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := o.Status(ctx); err == nil {
			t.Errorf("%s: it counts as our page", name)
		}
	}
}

func TestControlWithoutFolder(t *testing.T) {
	if others, err := ControlAll(filepath.Join(t.TempDir(), "none")); err != nil || len(others) != 0 {
		t.Errorf("%v, %v", others, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ControlAll(file); err == nil {
		t.Error("a file counts as a folder")
	}
	d := newDesk(t, standin.Options{}, func(p *Page) { p.cfg.Dir = filepath.Join(file, "x") })
	d.connected() // the page works, it only can't be controlled
}

func TestControlFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxControlFiles + 50 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i+1)+".json"), []byte(`{"pid":1,"port":1,"secret":"x"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := readControlFiles(dir)
	if err != nil || len(files) > maxControlFiles {
		t.Errorf("%d files were read, %v", len(files), err)
	}
}
