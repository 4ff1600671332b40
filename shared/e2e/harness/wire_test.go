package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

func TestWireCountsRequestsAndConnections(t *testing.T) {
	for name, roundTrip := range map[string]time.Duration{"fast": 0, "slow": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, _ = w.Write(body)
			}))
			defer server.Close()
			w, err := NewSlowWire(server.Listener.Addr().String(), roundTrip)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			body := strings.Repeat("x", 100_000)
			began := time.Now()
			for range 3 {
				echo(t, &http.Client{Transport: transport}, w.Addr, body)
			}
			// Three round trips, and one for the connection.
			if took := time.Since(began); took < 4*roundTrip {
				t.Errorf("three requests took %s", took)
			}
			var got Traffic
			counted := func() (bool, error) { // what has passed is counted a moment later
				got = w.Traffic()
				return got.Up >= 300_000 && got.Down >= 300_000, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := Poll(ctx, counted); err != nil || got.Requests != 3 || got.Connections != 1 {
				t.Errorf("counted %+v: %v", got, err)
			}
			w.CutAt()
			if got := w.Traffic(); got != (Traffic{}) {
				t.Errorf("after CutAt: %+v", got)
			}
		})
	}
}

func echo(t *testing.T, c *http.Client, address, body string) {
	t.Helper()
	res, err := c.Post("http://"+address, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != body {
		t.Errorf("%d bytes came back: %v", len(got), err)
	}
}

// What was written before the end arrives, as on a real line.
func TestASlowWireForwardsAllBeforeTheEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := strings.Repeat("0123456789", 100_000)
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = io.WriteString(conn, text)
			conn.Close()
		}
	}()
	w, err := NewSlowWire(l.Addr().String(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	conn, err := net.Dial("tcp", w.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != text {
		t.Errorf("%d of %d bytes arrived: %v", len(got), len(text), err)
	}
}

func TestRequestLinesAreCountedAcrossReads(t *testing.T) {
	text := "POST /v1/executions HTTP/1.1\r\nHost: x\r\n\r\n{}GET /health HTTP/1.1\r\n\r\n"
	for size := 1; size <= len(text); size++ {
		var c requestCounter
		n := int64(0)
		for rest := text; rest != ""; {
			p := rest[:min(size, len(rest))]
			n += c.count([]byte(p))
			rest = rest[len(p):]
		}
		if n != 2 {
			t.Errorf("in pieces of %d bytes: %d request lines, want 2", size, n)
		}
	}
}

// A cut loses the end of what each connection carries, and nothing in its middle, also if
// several connections meet it at once.
func TestACutLeavesNoGap(t *testing.T) {
	pattern := make([]byte, 251<<10) // no piece of it equals the next one
	for i := range pattern {
		pattern[i] = byte(i % 251)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go func() {
				defer conn.Close()
				for err := error(nil); err == nil; {
					_, err = conn.Write(pattern)
				}
			}()
		}
	}()
	w, err := NewWire(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cuts := make([]int64, 100)
	for i := range cuts {
		cuts[i] = int64(i+1)*(300<<10) + 77
	}
	w.CutAt(cuts...)
	var readers errgroup.Group
	for range 6 {
		readers.Go(func() error {
			for _, _, done := w.Passed(); done < len(cuts); _, _, done = w.Passed() {
				conn, err := net.Dial("tcp", w.Addr)
				if err != nil {
					return err
				}
				err = counted(conn)
				conn.Close()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := readers.Wait(); err != nil {
		t.Error(err)
	}
}

// counted reads up to a megabyte of bytes that count up modulo 251, or until the connection closes.
func counted(conn net.Conn) error {
	buf := make([]byte, 8<<10)
	for at := 0; at < 1<<20; {
		n, err := conn.Read(buf)
		for i, b := range buf[:n] {
			if b != byte((at+i)%251) {
				return fmt.Errorf("bytes are missing before byte %d", at+i)
			}
		}
		if at += n; err != nil {
			break
		}
	}
	return nil
}
