package attack

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// Tunnels send requests of strangers and of the owner over one connection. If tunnel and
// executor disagree where a stranger's request ends, the owner gets answers to what the
// stranger hid in it. So the connection ends with each such request.
func TestAStrangerOnTheOwnersConnectionHidesNoRequest(t *testing.T) {
	s := newStand(t)
	n := 0
	for _, lines := range []string{
		"Transfer-Encoding: chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: CHUNKED\r\nContent-Length: 0", "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5",
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: +5", "Content-Length : 5", "Expect: x", "A: \x00",
	} {
		for _, first := range []string{message("POST", "/v1/executions", lines), message("GET", "/v1/kernel", lines), message("POST", "/health", lines)} {
			n++
			own := s.captureOf(http.MethodGet, contract.PathKernel, nil, time.Now())
			got := ask(t, s.address, n, own.raw()+first+"0\r\n\r\n"+smuggled)
			if !regexp.MustCompile(`^200 (400|401|417|501)$`).MatchString(got.statuses) {
				t.Errorf("%q: answered %s", first, got.statuses)
			}
		}
		s.workHonestly()
	}
	t.Logf("%d cases", n)
	s.end([]int{})
}

// The same requests arrive on 40 connections at the same moment.
func TestConcurrentReplaysRunOnce(t *testing.T) {
	s := newStand(t)
	const connections = 40
	var want []int
	for n := range 5 {
		raw := s.capture(n).last()
		want = append(want, n)
		var accepted [connections]string
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range connections {
			conn := dial(t, s.address, i)
			all.Go(func() {
				defer conn.Close()
				<-start
				if _, err := io.WriteString(conn, raw); err != nil {
					t.Error(err)
				}
				accepted[i] = read(t, conn).statuses
			})
		}
		close(start)
		all.Wait()
		slices.Sort(accepted[:])
		if accepted[0] != "200" || accepted[1] != "401" || accepted[connections-1] != "401" {
			t.Errorf("answered %v", accepted)
		}
		s.workHonestly()
	}
	s.end(want)
}
