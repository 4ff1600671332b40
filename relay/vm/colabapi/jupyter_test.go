package colabapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// uploaded returns a temporary file's path and 4 chunks to upload there.
func uploaded(t *testing.T) (path string, content []byte) {
	content = make([]byte, 3<<20+1)
	_, _ = rand.Read(content)
	return filepath.Join(t.TempDir(), "file"), content
}

func mustContain(t *testing.T, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of another content, %v", len(got), err)
	}
}

func TestTokensExpireInTheMiddleOfAnUpload(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	g, b, id := started(t)
	g.TokensExpireAfter(2)
	path, content := uploaded(t)
	if err := b.Upload(within.Context(t), id, path, content); err != nil {
		t.Fatal(err)
	}
	mustContain(t, path, content)
	if n := g.Requests("GET /v1beta/runtimes/"); n < 3 {
		t.Errorf("%d tokens", n)
	}
}

// Jupyter appends a chunk that is sent twice, so the file is sent anew.
func TestAChunkWhoseAnswerIsLost(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	g, b, id := started(t)
	var puts atomic.Int32
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || puts.Add(1) != 3 {
			return false
		}
		g.Serve(discardWriter{}, r)
		panic(http.ErrAbortHandler)
	})
	path, content := uploaded(t)
	if err := b.Upload(within.Context(t), id, path, content); err != nil {
		t.Fatal(err)
	}
	mustContain(t, path, content)
}

func TestAFileThatArrivesChangedIsAnError(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, answer := range map[string]func(w http.ResponseWriter, content []byte){
		"other byte": func(w http.ResponseWriter, content []byte) {
			_, _ = w.Write(append(bytes.Clone(content[:len(content)-1]), content[len(content)-1]+1))
		},
		"shorter":   func(w http.ResponseWriter, content []byte) { _, _ = w.Write(content[:len(content)-1]) },
		"endless":   func(w http.ResponseWriter, content []byte) { _, _ = w.Write(content); flood(w) },
		"page":      func(w http.ResponseWriter, _ []byte) { fmt.Fprint(w, "<html>") },
		"forbidden": func(w http.ResponseWriter, _ []byte) { w.WriteHeader(403) },
		"redirect": func(w http.ResponseWriter, _ []byte) {
			w.Header().Set("Location", "http://evil.example/")
			w.WriteHeader(302)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, b, id := started(t)
			path, content := "/tmp/file", bytes.Repeat([]byte("x"), 100_000)
			g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/files/") {
					answer(w, content)
					return true
				}
				return r.Method == http.MethodPut // and keeps nothing
			})
			if err := b.Upload(within.Context(t), id, path, content); err == nil {
				t.Error("the upload succeeded")
			}
			if n := g.Requests("GET /files/"); n > 3 {
				t.Errorf("read back %d times", n)
			}
		})
	}
}

func TestPathsThatAreNotUploaded(t *testing.T) {
	g, b, id := started(t)
	for _, path := range []string{"", "a", "./a", "/a/../b", "/a//b", "/a/", "/a/./b", "/a\x00b"} {
		if err := b.Upload(within.Context(t), id, path, nil); err == nil {
			t.Errorf("%q was accepted", path)
		}
	}
	if err := b.Upload(within.Context(t), id, "/tmp/x", make([]byte, vm.MaxUpload+1)); err == nil {
		t.Error("a file beyond the bound was accepted")
	}
	if n := g.Requests("PUT "); n != 0 {
		t.Errorf("sent %d requests", n)
	}
}

func TestTheHelperKernelIsDeleted(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	g, b, id := started(t)
	if _, err := b.Exec(within.Context(t), id, "import time; time.sleep(600)", 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a timeout: %v", err)
	}
	ctx, cancel := context.WithCancel(within.Context(t))
	g.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/channels") {
			cancel() // the caller goes away while the code runs
		}
		return false
	})
	if _, err := b.Exec(ctx, id, "import time; time.sleep(600)", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if n := g.Kernels(id); n != 0 {
		t.Errorf("%d kernels are left", n)
	}
}

// The code blocks until the test has broken the connection, so it surely runs meanwhile.
func TestCodeRunsOnWhileTheConnectionIsBroken(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	g, b, id := started(t)
	dir := t.TempDir()
	code := fmt.Sprintf(`
import os, time
print("begin", flush=True)
open(%[1]q + "/began", "w").close()
while not os.path.exists(%[1]q + "/go"):
    time.sleep(0.01)
print("end")
`, dir)
	go func() {
		_ = harness.Poll(within.Context(t), func() (bool, error) { _, err := os.Stat(dir + "/began"); return err == nil, nil })
		g.ExpireToken(id)
		var refused atomic.Bool
		g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/channels") || refused.Swap(true) {
				return false
			}
			w.WriteHeader(http.StatusBadGateway) // the first attempt to connect again
			return true
		})
		g.DropSockets()
		_ = os.WriteFile(dir+"/go", nil, 0o600)
	}()
	out, err := b.Exec(within.Context(t), id, code, time.Minute)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(out), "end") {
		t.Errorf("%q, %v", out, err)
	}
	if n := g.Requests("GET /api/kernels/"); n < 2 {
		t.Errorf("%d connections", n)
	}
}

func TestAKernelThatDies(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	_, b, id := started(t)
	out, err := b.Exec(within.Context(t), id, "import os, sys, time; print('last words', flush=True); time.sleep(0.2); os._exit(1)", time.Minute)
	if err == nil || !strings.Contains(err.Error(), "died") || !strings.Contains(out, "last words") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestEndlessOutputIsBoundedAndEnds(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	_, b, id := started(t)
	out, err := b.Exec(within.Context(t), id, "while True: print('x' * 1000)", 3*time.Second)
	if !errors.Is(err, context.DeadlineExceeded) || len(out) > vm.MaxOutput {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// kernelOf makes the VM's Jupyter server one that says what script says over the kernel's
// WebSocket, for the request that it got.
func kernelOf(t *testing.T, g *colabapitest.Google, script func(ctx context.Context, c *websocket.Conn, request string)) {
	t.Helper()
	var connections atomic.Int32
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/api/kernels":
			fmt.Fprint(w, `{"id":"0-1"}`)
		case strings.HasSuffix(r.URL.Path, "/channels"):
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return true
			}
			defer c.CloseNow()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if first := connections.Add(1) == 1; !first {
				return true // what the kernel said meanwhile is lost
			}
			_, text, err := c.Read(ctx)
			if err != nil {
				return true
			}
			var m struct {
				Header struct {
					ID string `json:"msg_id"`
				} `json:"header"`
			}
			_ = json.Unmarshal(text, &m)
			script(ctx, c, m.Header.ID)
			c.Close(websocket.StatusNormalClosure, "")
		case strings.HasPrefix(r.URL.Path, "/api/kernels/"):
			fmt.Fprint(w, `{"execution_state":"idle"}`)
		default:
			return false
		}
		return true
	})
}

// say sends a message about a request.
func say(ctx context.Context, c *websocket.Conn, request, kind, content string) {
	_ = c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"header":{"msg_type":%q},"parent_header":{"msg_id":%q},"content":%s}`, kind, request, content))
}

func TestKernelsThatLie(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, test := range map[string]struct {
		script func(ctx context.Context, c *websocket.Conn, request string)
		out    string
		ok     bool
	}{
		"messages of others and of no form": {func(ctx context.Context, c *websocket.Conn, request string) {
			for _, junk := range []string{"", "{", "[]", "null", `{"header":7}`, `{"content":null}`, `{"header":{"msg_type":"stream"},"parent_header":{"msg_id":"other"},"content":{"text":"no"}}`, strings.Repeat("[", 100_000)} {
				_ = c.Write(ctx, websocket.MessageText, []byte(junk))
			}
			_ = c.Write(ctx, websocket.MessageBinary, []byte("binary"))
			say(ctx, c, request, "stream", `{"text":7}`)
			say(ctx, c, request, "stream", `{"text":"yes"}`)
			say(ctx, c, request, "status", `{"execution_state":"idle"}`)
			say(ctx, c, request, "execute_reply", `{}`)
		}, "yes", true},
		"no idle status": {func(ctx context.Context, c *websocket.Conn, request string) {
			say(ctx, c, request, "execute_reply", `{}`)
			_, _, _ = c.Read(ctx) // until the relay ends the connection
		}, "", true},
		"thousands of small texts": {func(ctx context.Context, c *websocket.Conn, request string) {
			for range 6_000 {
				say(ctx, c, request, "stream", `{"text":"`+strings.Repeat("y", 200)+`"}`)
			}
			say(ctx, c, request, "execute_reply", `{}`)
			say(ctx, c, request, "status", `{"execution_state":"idle"}`)
		}, strings.Repeat("y", vm.MaxOutput), true},
		"one text beyond the bound": {func(ctx context.Context, c *websocket.Conn, request string) {
			say(ctx, c, request, "stream", `{"text":"`+strings.Repeat("ü", vm.MaxOutput/2+1)+`"}`)
			say(ctx, c, request, "execute_reply", `{}`)
			say(ctx, c, request, "status", `{"execution_state":"idle"}`)
		}, strings.Repeat("ü", vm.MaxOutput/2), true},
		"a message beyond the bound": {func(ctx context.Context, c *websocket.Conn, request string) {
			say(ctx, c, request, "stream", `{"text":"`+strings.Repeat("z", 17<<20)+`"}`)
			_, _, _ = c.Read(ctx) // until the relay ends the connection
		}, "", false},
		"a connection that always breaks": {func(context.Context, *websocket.Conn, string) {}, "", false},
		"a dead kernel": {func(ctx context.Context, c *websocket.Conn, _ string) {
			say(ctx, c, "", "status", `{"execution_state":"dead"}`)
			_, _, _ = c.Read(ctx) // until the relay ends the connection
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, b, id := started(t)
			kernelOf(t, g, test.script)
			out, err := b.Exec(within.Context(t), id, "pass", time.Minute)
			if (err == nil) != test.ok || out != test.out {
				t.Errorf("%d bytes, %v", len(out), err)
			}
		})
	}
}

func TestAnExceptionsTextIsBoundedAndPlain(t *testing.T) {
	g, b, id := started(t)
	kernelOf(t, g, func(ctx context.Context, c *websocket.Conn, request string) {
		say(ctx, c, request, "error", `{"ename":"`+strings.Repeat("E", 5000)+`","evalue":"\u001b[31m`+strings.Repeat("ü", 5000)+`"}`)
		say(ctx, c, request, "execute_reply", `{}`)
		say(ctx, c, request, "status", `{"execution_state":"idle"}`)
	})
	_, err := b.Exec(within.Context(t), id, "pass", time.Minute)
	raised, ok := errors.AsType[*vm.ExecError](err)
	if !ok || len(raised.Name) > 1000 || len(raised.Value) > 1000 || strings.ContainsRune(raised.Value, '\x1b') {
		t.Errorf("got %.100v", err)
	}
}

func TestHostileNamesOfKernelsAreNotUsed(t *testing.T) {
	for _, name := range []string{"", "..", "../contents", "a/b", "0-1?x", strings.Repeat("0", 65), "\\u0000"} {
		g, b, id := started(t)
		g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && r.URL.Path == "/api/kernels" {
				fmt.Fprintf(w, `{"id":"%s"}`, name)
				return true
			}
			return false
		})
		if _, err := b.Exec(within.Context(t), id, "pass", time.Minute); err == nil {
			t.Errorf("%q was used", name)
		}
		if n := g.Requests("DELETE ") + g.Requests("GET /api/"); n != 0 {
			t.Errorf("%q: %d requests", name, n)
		}
	}
}

func TestASlowOrHugeAnswerIsNotWaitedFor(t *testing.T) {
	g, b, id := started(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/api/kernels") {
			flood(w)
			return true
		}
		return false
	})
	if err := b.Touch(within.Context(t), id); err == nil {
		t.Error("a flood is an answer")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	g.Intercept(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
	if err := b.Touch(ctx, id); err == nil {
		t.Error("nothing is an answer")
	}
}

// Code on the VM can make its Jupyter server answer so. net/http then forgets the request's time.
func TestAnAnswerThatSwitchesProtocolIsNotWaitedFor(t *testing.T) {
	tier.Long(t)
	g, b, id := started(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"))
		_, _ = conn.Read(make([]byte, 1)) // until the backend gives up
		return true
	})
	for name, call := range map[string]func() error{
		"a touch": func() error { return b.Touch(within.Context(t), id) },
		"a list":  func() error { _, err := b.List(within.Context(t)); return err },
		"a file":  func() error { return b.Upload(within.Context(t), id, "/tmp/x", []byte("x")) },
	} {
		ended := make(chan error, 1)
		go func() { ended <- call() }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s succeeded", name)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s waits without end", name)
		}
	}
}
