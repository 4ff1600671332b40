package client

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

// endlessAnswers are beginnings of answers that never end, and what follows them, again and again.
// Of some, the head never ends.
var endlessAnswers = map[string]struct {
	first, further string
	headless       bool
}{
	"switches protocol":              {first: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
	"switches protocol, and goes on": {first: "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", further: "x"},
	"hints, and is silent":           {first: "HTTP/1.1 103 Early Hints\r\n\r\n", headless: true},
	"hints without end":              {further: "HTTP/1.1 103 Early Hints\r\n\r\n", headless: true},
	"headers without end":            {first: "HTTP/1.1 200 OK\r\n", further: "A: b\r\n", headless: true},
	"a page that trickles":           {first: "HTTP/1.1 404 Not Found\r\n\r\n", further: "x"},
	"a piece that never comes":       {first: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"},
}

// endlessServer answers each request with an endless answer before it has read the whole request.
// answered gets an element for each answer that has begun.
func endlessServer(t *testing.T, first, further string) (url string, answered <-chan bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan bool, 100)
	var serving sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() { l.Close(); end(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { conn.Close() })
			serving.Go(func() { answerEndlessly(conn, first, further, begun) })
		}
	})
	return "http://" + l.Addr().String(), begun
}

// answerEndlessly returns when the client has closed the connection.
func answerEndlessly(conn net.Conn, first, further string, begun chan<- bool) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return
	}
	_, _ = io.WriteString(conn, first)
	select {
	case begun <- true:
	default:
	}
	if further == "" {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	closed := make(chan bool)
	go func() { defer close(closed); _, _ = io.Copy(io.Discard, conn) }()
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-closed:
			return
		case <-pace.C:
			if _, err := io.WriteString(conn, further); err != nil {
				conn.Close()
				<-closed
				return
			}
		}
	}
}

// endlessCalls are calls of each form that a request and an answer can have.
var endlessCalls = map[string]func(ctx context.Context, c *Client) error{
	"health": func(ctx context.Context, c *Client) error { _, err := c.Health(ctx); return err },
	"a run": func(ctx context.Context, c *Client) error {
		_, err := c.Submit(ctx, contract.Submit{Code: "1", WaitSeconds: 45})
		return err
	},
	"a part of a download": func(ctx context.Context, c *Client) error {
		_, err := c.Content(ctx, Part{Path: "/a", ETag: "e"}, 1, io.Discard)
		return err
	},
	"a part of an upload": func(ctx context.Context, c *Client) error {
		_, err := c.PutPart(ctx, "0123456789abcdef0123456789abcdef", bytes.NewReader(make([]byte, 8<<20)), contract.Range{Length: 8 << 20})
		return err
	},
}

// A call ends with its context, whatever has begun to answer.
func TestNoAnswerOutlivesItsCall(t *testing.T) {
	for name, a := range endlessAnswers {
		for what, call := range endlessCalls {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				url, answered := endlessServer(t, a.first, a.further)
				network := &watched{NewTransport(), make(chan bool, 100)}
				c := newClient(t, Config{BaseURL: url, Secret: testSecret(t, testKey), Transport: network})
				c.instance.Store(&contract.Instance{ID: "instance-1", Start: "start-1"})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- call(ctx, c) }()
				if <-answered; !a.headless {
					select {
					case <-network.read:
					case err := <-ended:
						ended <- err
					}
				}
				cancel()
				if err := within.Receive(t, "the end of a call whose context ended", ended); err == nil {
					t.Error("it succeeded")
				}
			})
		}
	}
}

// An answer that switches to another protocol is refused before its body is read, and says so. The
// code of such a submit may run.
func TestAnAnswerThatSwitchesProtocolIsRefusedAtOnce(t *testing.T) {
	for name, a := range endlessAnswers {
		if !strings.HasPrefix(name, "switches") {
			continue
		}
		url, _ := endlessServer(t, a.first, a.further)
		c := newClient(t, Config{BaseURL: url, Secret: testSecret(t, testKey)})
		c.instance.Store(&contract.Instance{ID: "instance-1", Start: "start-1"})
		_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
		if e := wantKind(t, err, KindNotExecutor); !strings.Contains(e.Message, "HTTP 101") || !MayRun(err) {
			t.Errorf("%s: %v, may run: %v", name, err, MayRun(err))
		}
		_, err = c.Health(t.Context())
		wantKind(t, err, KindNotExecutor)
	}
}

// watched is the network, and tells when an answer's body is being read.
type watched struct {
	*http.Transport
	read chan bool
}

func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := w.Transport.RoundTrip(req)
	if err == nil {
		res.Body = watchedBody{res.Body, w.read}
	}
	return res, err
}

type watchedBody struct {
	io.ReadCloser
	read chan<- bool
}

func (b watchedBody) Read(p []byte) (int, error) {
	select {
	case b.read <- true:
	default:
	}
	return b.ReadCloser.Read(p)
}
