package colabapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

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

func TestAMessageOfAKernelBeyondTheBoundIsNotRead(t *testing.T) {
	t.Parallel()
	g, b, id := started(t)
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
			_ = c.Write(r.Context(), websocket.MessageText, bytes.Repeat([]byte("z"), 17<<20))
			_, _, _ = c.Read(r.Context()) // until the relay ends the connection
		case strings.HasPrefix(r.URL.Path, "/api/kernels/"):
			fmt.Fprint(w, `{"execution_state":"idle"}`)
		default:
			return false
		}
		return true
	})
	if out, err := b.Exec(within.Context(t), id, "pass", time.Minute); err == nil || out != "" {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}
