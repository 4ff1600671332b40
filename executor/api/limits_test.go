package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestUnsignedRequestsAreLimitedPerAddress(t *testing.T) {
	timeless(t, func(t *testing.T, s *stand) {
		ask := func(path, addr string) reply {
			req := s.request("GET", path, nil)
			req.Header.Set(addrHeader, addr)
			return s.do(req)
		}
		for i := range maxUnsignedPerMinute {
			path := []string{contract.PathHealth, "/x"}[i%2]
			if res := ask(path, "10.0.0.1"); res.StatusCode == http.StatusTooManyRequests {
				t.Fatalf("request %d is over the limit", i+1)
			}
		}
		ask("/x", "10.0.0.1").want(t, http.StatusTooManyRequests, contract.CodeRateLimited)
		ask(contract.PathHealth, "10.0.0.1").want(t, http.StatusTooManyRequests, contract.CodeRateLimited)
		if res := ask(contract.PathHealth, "10.0.0.2"); res.StatusCode != http.StatusOK {
			t.Errorf("another address gets %d", res.StatusCode)
		}
		req := s.request("GET", "/x", nil)
		req.Header.Set(addrHeader, "10.0.0.1")
		if res := s.signed(req, nil); res.StatusCode != http.StatusOK {
			t.Errorf("a signed request from the limited address gets %d", res.StatusCode)
		}
	})
}

func TestWaitingRequestsAreLimitedAndTheRestIsRetryable(t *testing.T) {
	s := newStand(t) // without a backend, so that signed requests wait
	ended := make(chan int, 2*maxWaiting)
	for range 2 * maxWaiting { // each signs as another caller
		go func() { ended <- s.call("GET", "/v1/nothing", nil).StatusCode }()
	}
	within.Until(t, "so many requests wait", func() bool { return s.api.waiting.inUse() == 2*maxWaiting })
	e := s.call("GET", "/v1/nothing", nil).want(t, http.StatusServiceUnavailable, contract.CodeRateLimited)
	if !e.Retryable {
		t.Error("the answer is not retryable")
	}
	s.api.Attach(Backend{})
	for range 2 * maxWaiting {
		if status := <-ended; status != http.StatusNotFound {
			t.Errorf("a waiting request ends with %d", status)
		}
	}
}

func TestACallerThatDisconnectsReleasesItsSlot(t *testing.T) {
	s := newStand(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	req := s.request("GET", "/v1/nothing", nil)
	s.sign(req, nil, time.Now())
	must(t, req.Write(c))
	within.Until(t, "so many requests wait", func() bool { return s.api.waiting.inUse() == 1 })
	c.Close()
	within.Until(t, "so many requests wait", func() bool { return s.api.waiting.inUse() == 0 })
}

func TestAnUnsignedBodyThatNeverArrivesDoesNotKeepTheConnection(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(within.Limit))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized || !res.Close {
		t.Errorf("answer is %d, connection closed %v", res.StatusCode, res.Close)
	}
}

func TestTimeoutsCutSlowHeadersAndNoLongPoll(t *testing.T) {
	server := Server(http.NotFoundHandler(), nil)
	if server.ReadHeaderTimeout != 5*time.Second || server.ReadTimeout != 0 {
		t.Errorf("header timeout %v, read timeout %v", server.ReadHeaderTimeout, server.ReadTimeout)
	}
	if server.WriteTimeout <= bodyTimeout+contract.MaxWait || server.WriteTimeout <= restartTimeout {
		t.Errorf("write timeout %v cuts long polls or restarts", server.WriteTimeout)
	}
}

// takeAll has all callers take as many tokens as they can in a minute, and counts those of each.
// The first caller sends greedy requests in parallel, the others one, and they need a while before
// they send the next one.
func takeAll(t *testing.T, callers, greedy int, late time.Duration) []int {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := emptyKeyRate()
	given := make([]int, callers)
	var mu sync.Mutex
	var group sync.WaitGroup
	for n := range callers {
		atOnce := 1
		if n == 0 {
			atOnce = greedy
		}
		for range atOnce {
			group.Go(func() {
				for ctx.Err() == nil {
					if !k.take(ctx, caller(n)) {
						<-time.After(time.Second)
						continue
					}
					mu.Lock()
					given[n]++
					mu.Unlock()
					if n > 0 {
						<-time.After(late)
					}
				}
			})
		}
	}
	group.Wait()
	return given
}

// emptyKeyRate is a rate whose burst is used up.
func emptyKeyRate() *keyRate {
	k := newKeyRate()
	k.tokens = 0
	return k
}

func TestAHundredCallersGetEqualSharesOfTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given := takeAll(t, 100, 1, 0)
		if fewest, most := slices.Min(given), slices.Max(given); most-fewest > 2 || fewest < 59 {
			t.Errorf("of %d a minute one caller gets %d, another %d", 60*keyPerSecond, fewest, most)
		}
	})
}

// The next token is another caller's before a relay that waits for each answer asks again. It must
// not lose its turn by that.
func TestACallerThatAsksLateGetsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, callers := range []int{2, 3, 10} {
			given := takeAll(t, callers, 50, 3*time.Second/keyPerSecond/2)
			if fewest, most := slices.Min(given), slices.Max(given); most-fewest > 2 {
				t.Errorf("of %d callers one gets %d, another %d", callers, fewest, most)
			}
		}
	})
}

func TestAWaitForATurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, began := emptyKeyRate(), time.Now()
		k.now = func() time.Time { return began } // no token is ever added
		k.timer = time.AfterFunc(time.Hour, func() {})
		defer k.timer.Stop()
		var group sync.WaitGroup
		for range maxKeyWaiting {
			group.Go(func() {
				if k.take(t.Context(), caller(0)) {
					t.Error("a request got a token that does not exist")
				}
			})
		}
		synctest.Wait()
		if k.take(t.Context(), caller(0)) || time.Since(began) != 0 {
			t.Errorf("a request without a slot waits %v", time.Since(began))
		}
		group.Wait()
		if d := time.Since(began); d != maxKeyWait || len(k.queue) != 0 {
			t.Errorf("the wait ended after %v, %d turns are left", d, len(k.queue))
		}
	})
}

func caller(n int) (c auth.Caller) {
	binary.BigEndian.PutUint64(c[:], uint64(n)+1)
	return c
}

// inUse is how many slots are taken.
func (p *slots) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// visits is a registry of connections that are not real sockets.
type visits struct {
	t        *testing.T
	server   http.Server
	registry connections
}

func newVisits(t *testing.T) *visits {
	v := &visits{t: t}
	v.registry.watch(&v.server, nil)
	return v
}

// visit is one of them.
type visit struct {
	net.Conn
	from   string
	closed bool
}

func (v *visit) RemoteAddr() net.Addr { return namedAddr(v.from) }
func (v *visit) Close() error {
	v.closed = true
	return nil
}

type namedAddr string

func (namedAddr) Network() string  { return "tcp" }
func (a namedAddr) String() string { return string(a) }

// open opens a connection, and returns a request on it.
func (v *visits) open(from string) (*visit, *http.Request) {
	conn := &visit{from: from}
	return conn, new(http.Request).WithContext(v.server.ConnContext(v.t.Context(), conn))
}

// verify makes a request on each of the connections, and counts those that can.
func (v *visits) verify(requests []*http.Request) (verified int) {
	for _, r := range requests {
		before := v.registry.verified
		markVerified(r)
		verified += v.registry.verified - before
	}
	return verified
}

const behindTunnel = "127.0.0.1:40000"

// Strangers open connections at a rate at which each can be given the time for its first
// byte. An owner's first byte comes 300 ms after its connection.
func TestAnOwnersFirstByteMayTakeItsTimeAmongStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perMillisecond = 2
		v := newVisits(t)
		var owners []*http.Request
		for ms := range 2000 {
			if ms%100 == 0 {
				_, r := v.open(behindTunnel)
				owners = append(owners, r)
			}
			if n := len(owners) - 4; ms%100 == 0 && n >= 0 && v.verify(owners[n:n+1]) != 1 {
				t.Fatalf("the owner's connection %d was closed before its first byte", n)
			}
			for range perMillisecond {
				v.open(behindTunnel)
			}
			<-time.After(time.Millisecond)
		}
		if n := len(v.registry.unverified); n < maxUnverified || n > maxUnverified+1 {
			t.Errorf("%d strangers", n)
		}
	})
}

// Whoever comes from another address than the strangers loses nothing, however many they are.
func TestTheAddressWithMostStrangersPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisits(t)
		var owners []*http.Request
		var quiet []*visit
		for n := range 5000 {
			from := fmt.Sprintf("[2001:db8::%x]:1", n) // one network, whatever the address in it
			if n%2 == 0 {
				from = "198.51.100.1:1"
			}
			v.open(from)
			if n%100 == 0 {
				conn, r := v.open(fmt.Sprintf("203.0.113.%d:1", n/100))
				owners, quiet = append(owners, r), append(quiet, conn)
			}
		}
		for n, conn := range quiet {
			if conn.closed {
				t.Fatalf("the connection of address %d was closed", n)
			}
		}
		if n := v.verify(owners); n != len(owners) {
			t.Errorf("%d of %d owners could send a request", n, len(owners))
		}
		if n := len(v.registry.sources); n != 2 {
			t.Errorf("%d addresses are remembered, want those of the strangers", n)
		}
	})
}

// One over each limit.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisits(t)
		c := &v.registry
		var first *visit
		for n := range maxVerified + 1 {
			conn, r := v.open(behindTunnel)
			if n == 0 {
				first = conn
			}
			markVerified(r)
		}
		if c.verified != maxVerified || len(c.unverified) != 1 {
			t.Fatalf("%d verified, %d strangers", c.verified, len(c.unverified))
		}
		active := c.unverified[0].conn
		v.server.ConnState(active, http.StateActive)
		<-time.After(youngFor)
		for range maxUnverified - 1 {
			v.open(behindTunnel)
		}
		guest, _ := v.open(behindTunnel)
		if next, _ := v.open(behindTunnel); !guest.closed || next.closed || len(c.unverified) != maxUnverified+1 {
			t.Errorf("while all others are young, the place of one past the limit is not the last one's: %d strangers", len(c.unverified))
		}
		<-time.After(youngFor)
		for range 3 * maxUnverified {
			v.open(behindTunnel)
		}
		if len(c.unverified) != maxUnverified+1 || c.unverified[0].conn != active || len(c.all) != maxVerified+maxUnverified+1 {
			t.Errorf("%d strangers, %d in all; the active one was closed first", len(c.unverified), len(c.all))
		}
		v.server.ConnState(first, http.StateClosed)
		if c.verified != maxVerified-1 {
			t.Errorf("%d verified after one was closed", c.verified)
		}
		for _, known := range slices.Clone(c.unverified) {
			v.server.ConnState(known.conn, http.StateActive)
		}
		<-time.After(youngFor)
		if conn, _ := v.open(behindTunnel); conn.closed || c.all[active] != nil {
			t.Error("where a request arrives on all others, the oldest one does not go")
		}
	})
}

// With more strangers than can be given the time, an owner behind the same tunnel is let in
// as often as they are.
func TestAFloodOfStrangersBehindOneTunnelLetsOwnersInToo(t *testing.T) {
	tier.Long(t)
	synctest.Test(t, func(t *testing.T) {
		v := newVisits(t)
		var owners []*http.Request
		const owned = 100
		for n := range 100 * owned { // 10,000 a second, of which one in a hundred is an owner's
			conn, r := v.open(behindTunnel)
			if n%100 == 7 {
				owners = append(owners, r)
			}
			if n < maxUnverified && conn.closed {
				t.Fatal("a connection below the limit was closed")
			}
			if n%10 == 9 {
				<-time.After(time.Millisecond)
			}
			if n >= 3000 && n%100 == 7 { // 300 ms later
				v.verify(owners[:len(owners)-30])
			}
		}
		if let := v.registry.verified; let < owned/10 {
			t.Errorf("%d of %d owners were let in, want at least a tenth", let, owned)
		}
	})
}

// Strangers open more connections at once than there may be, and send a byte on each: the owner
// who comes just after them can send a request, and so can the next one after it.
func TestTheOwnerIsLetInJustAfterABurstOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisits(t)
		for range 1500 {
			conn, _ := v.open(behindTunnel)
			v.server.ConnState(conn, http.StateActive)
		}
		for n := range 3 {
			conn, r := v.open(behindTunnel)
			<-time.After(100 * time.Millisecond) // until its first byte
			if conn.closed || v.verify([]*http.Request{r}) != 1 {
				t.Errorf("owner %d was turned away", n)
			}
		}
		if n := len(v.registry.unverified); n > maxUnverified+1 {
			t.Errorf("%d strangers", n)
		}
	})
}
