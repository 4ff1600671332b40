package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// idler opens connections on which it never sends anything, and closes its oldest ones.
type idler struct {
	t     *testing.T
	addr  string
	conns []net.Conn
}

func (i *idler) open(keep int) {
	i.t.Helper()
	c, err := net.Dial("tcp", i.addr)
	if err != nil {
		i.t.Fatal(err)
	}
	if i.conns = append(i.conns, c); len(i.conns) > keep {
		i.conns[0].Close()
		i.conns = i.conns[1:]
	}
}

func (i *idler) close() {
	for _, c := range i.conns {
		c.Close()
	}
}

func addrOf(s *stand) string { return strings.TrimPrefix(s.url, "http://") }

// open counts the idle connections that the server still has open.
func (i *idler) stillOpen() (n int) {
	for _, c := range i.conns {
		c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && strings.Contains(err.Error(), "timeout") {
			n++
		}
	}
	return n
}

// Strangers can't use up all connections: at the limit, each new one closes their oldest
// one, and those of the owner stay open.
func TestIdleStrangersDoNotCrowdTheOwnerOut(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	strangers := &idler{t: t, addr: addrOf(s)}
	defer strangers.close()
	own := 0
	ask := func() {
		t.Helper()
		if got := s.call("GET", "/v1/nothing", nil); got.StatusCode != http.StatusNotFound {
			t.Fatalf("the owner gets %d", got.StatusCode)
		}
		own++
	}
	ask()
	for range 234 {
		strangers.open(234)
	}
	ask()
	if n := strangers.stillOpen(); n > maxUnverified {
		t.Errorf("%d idle strangers hold a connection, want %d at most", n, maxUnverified)
	}
	for n := range 3000 {
		strangers.open(100)
		if n%100 == 0 {
			ask()
			s.http.CloseIdleConnections() // the next call opens a new connection
		}
	}
}

func TestAConnectionWithoutAVerifiedRequestIsClosedWithItsAnswer(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	for _, request := range []string{"GET /v1/kernel", "GET /health", "OPTIONS *", "OPTIONS /v1/kernel", "POST /"} {
		t.Run(request, func(t *testing.T) {
			c, err := net.Dial("tcp", addrOf(s))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\n\r\n", request)
			r := bufio.NewReader(c)
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			if request != "GET /health" && (res.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), "unauthorized")) {
				t.Errorf("%d %s", res.StatusCode, body)
			}
			if !res.Close {
				t.Error("the connection is kept")
			}
			if _, err := r.ReadByte(); err != io.EOF {
				t.Errorf("the connection is still open: %v", err)
			}
		})
	}
}

func TestTheOwnersConnectionIsKept(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	c, err := net.Dial("tcp", addrOf(s))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for n, signed := range []bool{true, true, false, true} {
		req := s.request("GET", "/v1/nothing", nil)
		if signed {
			s.sign(req, nil, time.Now())
		}
		if err := req.Write(c); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(r, req)
		if err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		io.Copy(io.Discard, res.Body)
		if res.Close || signed == (res.StatusCode == http.StatusUnauthorized) {
			t.Errorf("request %d: %d, closed %t", n, res.StatusCode, res.Close)
		}
	}
}

// A tunnel that finds the end of a request by its Content-Length would take the answer to what
// follows the chunks for the answer to the next request.
func TestNoRequestIsAnsweredAfterChunks(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	for _, signed := range []bool{false, true} {
		c, err := net.Dial("tcp", addrOf(s))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		r := bufio.NewReader(c)
		own := s.request("GET", "/v1/nothing", nil)
		s.sign(own, nil, time.Now())
		req := s.request("POST", "/v1/nothing", nil)
		if signed {
			s.sign(req, []byte("x"), time.Now())
		} else {
			setBody(req, []byte("x"))
		}
		req.ContentLength = -1
		var both bytes.Buffer
		if err := errors.Join(own.Write(&both), req.Write(&both)); err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, strings.ReplaceAll(both.String(), "Transfer-Encoding:", "Content-Length: 3\r\nTransfer-Encoding:")+"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		for range 2 {
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
		}
		if more, _ := io.ReadAll(r); len(more) > 0 {
			t.Errorf("signed %t: what follows the chunks is answered %q", signed, more)
		}
	}
}

// One over each limit, with connections that are not real sockets.
func TestConnectionsAreBounded(t *testing.T) {
	var server http.Server
	c := new(connections)
	c.watch(&server, nil)
	open := func() (net.Conn, *http.Request) {
		near, far := net.Pipe()
		t.Cleanup(func() { far.Close() })
		ctx := server.ConnContext(t.Context(), near)
		return near, (&http.Request{}).WithContext(ctx)
	}
	var first net.Conn
	for n := range maxVerified + 1 {
		conn, r := open()
		if n == 0 {
			first = conn
		}
		markVerified(r)
	}
	if c.verified != maxVerified || len(c.unverified) != 1 {
		t.Fatalf("%d verified, %d strangers", c.verified, len(c.unverified))
	}
	active := c.unverified[0].conn
	server.ConnState(active, http.StateActive)
	for range 3 * maxUnverified {
		open()
	}
	if len(c.unverified) != maxUnverified || c.unverified[0].conn != active || len(c.all) != maxVerified+maxUnverified {
		t.Errorf("%d strangers, %d in all; the active one was closed first", len(c.unverified), len(c.all))
	}
	server.ConnState(first, http.StateClosed)
	if c.verified != maxVerified-1 {
		t.Errorf("%d verified after one was closed", c.verified)
	}
}
