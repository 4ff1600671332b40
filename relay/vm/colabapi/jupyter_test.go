package colabapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

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
	g, b, id := started(t)
	content := bytes.Repeat([]byte("x"), 100_000)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/files/") {
			_, _ = w.Write(append(bytes.Clone(content[1:]), 'y'))
			return true
		}
		return r.Method == http.MethodPut // and keeps nothing
	})
	if err := b.Upload(within.Context(t), id, "/tmp/file", content); err == nil {
		t.Error("the upload succeeded")
	}
	if n := g.Requests("GET /files/"); n > 3 {
		t.Errorf("read back %d times", n)
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
		"a message beyond the bound": {func(ctx context.Context, c *websocket.Conn, request string) {
			say(ctx, c, request, "stream", `{"text":"`+strings.Repeat("z", 17<<20)+`"}`)
			_, _, _ = c.Read(ctx) // until the relay ends the connection
		}, "", false},
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

func TestHostileNamesOfKernelsAreNotUsed(t *testing.T) {
	for _, name := range []string{"", "../contents", "0-1?x"} {
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

func TestAnEndlessAnswerIsNotReadToItsEnd(t *testing.T) {
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
	ended := make(chan error, 1)
	go func() { ended <- b.Touch(within.Context(t), id) }()
	if err := within.Receive(t, "the end of the call", ended); err == nil {
		t.Error("the touch succeeded")
	}
}
