package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
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
	if err != nil {
		t.Fatal(err)
	}
	req := s.request("GET", "/v1/nothing", nil)
	s.sign(req, nil, time.Now())
	if err := req.Write(c); err != nil {
		t.Fatal(err)
	}
	within.Until(t, "so many requests wait", func() bool { return s.api.waiting.inUse() == 1 })
	c.Close()
	within.Until(t, "so many requests wait", func() bool { return s.api.waiting.inUse() == 0 })
}

func TestAnUnsignedBodyThatNeverArrivesDoesNotKeepTheConnection(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/executions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(within.Limit))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
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
