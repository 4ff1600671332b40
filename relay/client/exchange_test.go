package client

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// Of an answer that no executor signed, only its beginning is read.
func TestUnsignedAnswerIsBounded(t *testing.T) {
	e, _ := newRunningExecutor(t)
	var sent atomic.Int64
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		chunk := make([]byte, 1<<20)
		for range 64 {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return true
			}
		}
		return true
	})
	c := e.client(t)
	_, err := c.Health(t.Context())
	wantKind(t, err, KindNotExecutor)
	_, err = c.Kernel(t.Context())
	wantKind(t, err, KindNotExecutor)
	// Three requests were made: the second call asked for the executor's protocol. Of each
	// answer, the system buffers some.
	if n := sent.Load(); n > 3*16<<20 {
		t.Errorf("%d bytes were taken of 192 MiB", n)
	}
}

func TestStalledAnswerTimesOut(t *testing.T) {
	for name, headers := range map[string]bool{"before the headers": false, "in the body": true} {
		t.Run(name, func(t *testing.T) {
			e, _ := newRunningExecutor(t)
			released := make(chan struct{})
			defer close(released)
			e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
				if headers {
					_, _ = io.WriteString(w, `{"status":`)
					_ = http.NewResponseController(w).Flush()
				}
				select {
				case <-released:
				case <-r.Context().Done():
				}
				return true
			})
			c := e.client(t)
			c.timeouts = timeouts{answer: 80 * time.Millisecond, stall: 80 * time.Millisecond}
			_, err := c.Health(t.Context())
			wantKind(t, err, KindTimeout)
		})
	}
}
