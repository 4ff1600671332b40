package attack

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// More strangers than the executor keeps connections for, 1024, each with a way to take its
// time. All of them lose their connections, and the honest relay works meanwhile.
func TestSlowStrangersHoldNothing(t *testing.T) {
	tier.Long(t)
	s := newStand(t)
	starts := map[string]string{
		"nothing": "", "a byte": "G", "a request line": "GET /v1/kernel HTTP/1.1\r\n", "headers": "GET /v1/kernel HTTP/1.1\r\nHost: x\r\nA: ", "a body": message("POST", "/v1/executions", "Content-Length: 1000") + "x",
		"chunks": message("POST", "/v1/executions", "Transfer-Encoding: chunked") + "5\r\nhe", "a trailer": message("POST", "/v1/executions", "Transfer-Encoding: chunked") + "0\r\nA: ", "100-continue": message("POST", "/v1/executions", "Expect: 100-continue", "Content-Length: 9"),
		"health's body": message("GET", "/health", "Content-Length: 9"), "empty lines": "\r\n\r\n",
	}
	var conns []net.Conn
	for round := range 105 {
		for _, start := range starts {
			conn := dial(t, s.address, len(conns))
			defer conn.Close()
			_, _ = io.WriteString(conn, start) // fails if the connection was closed for a newer one
			conns = append(conns, conn)
		}
		if round%3 == 0 {
			s.workHonestly()
		}
	}
	over := make(chan struct{})
	var trickle sync.WaitGroup
	trickle.Go(func() { drip(conns, over) })
	for _, conn := range conns {
		if _, err := io.Copy(io.Discard, conn); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				t.Error("a slow stranger keeps its connection")
			}
		}
	}
	close(over)
	trickle.Wait()
	s.workHonestly()
	t.Logf("%d connections", len(conns))
	s.end([]int{})
}

// drip sends a byte over each connection now and then, until over is closed.
func drip(conns []net.Conn, over <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		for _, conn := range conns {
			_, _ = conn.Write([]byte("a")) // fails once the executor has closed the connection
		}
	}
}

// Holders of the key request parts of 8 MiB and read none of them. The executor holds a record
// of each in memory, not a part.
func TestSlowReadersTakeNoMemory(t *testing.T) {
	s := newStand(t)
	s.run(fmt.Sprintf("open('large.bin', 'wb').truncate(%d)", contract.MaxFilePart))
	stat, err := s.relay.Stat(t.Context(), "large.bin", false, 0)
	must(t, err)
	query := url.Values{"path": {"large.bin"}, "etag": {stat.ETag}}.Encode()
	const readers = 60
	var slow []net.Conn
	for n := range readers {
		conn := dial(t, s.address, n)
		defer conn.Close()
		must(t, conn.SetReadBuffer(4<<10))
		_, err := io.WriteString(conn, s.captureOf(http.MethodGet, contract.PathContent+"?"+query, nil, time.Now()).raw())
		must(t, err)
		var head [12]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil || !strings.HasSuffix(string(head[:]), " 200") {
			t.Fatalf("reader %d is answered %q: %v", n, head, err)
		}
		if n%10 == 0 {
			s.workHonestly()
		}
		slow = append(slow, conn)
	}
	if grown := s.usage().memory.Now - s.before.memory.Now; grown > readers {
		t.Errorf("memory grew by %.0f MiB for %d readers", grown, readers)
	}
	for _, conn := range slow {
		must(t, conn.Close())
	}
	s.end([]int{})
}
