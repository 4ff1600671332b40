package attack

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
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

// Requests of the owner in one write are each answered, in their order.
func TestPipelinedRequestsOfTheOwnerRunOnceEachInOrder(t *testing.T) {
	s := newStand(t)
	var raw strings.Builder
	var want []int
	for n := range 10 {
		raw.WriteString(s.capture(n).raw())
		want = append(want, n)
	}
	got := ask(t, s.address, 0, strings.Repeat(raw.String(), 2)+s.captureOf(http.MethodGet, contract.PathKernel, nil, time.Now()).last())
	statuses := strings.Fields(got.statuses)
	expected := slices.Concat(slices.Repeat([]string{"200"}, 10), slices.Repeat([]string{"401"}, 10), []string{"200"})
	if !slices.Equal(statuses, expected) {
		t.Errorf("answered %s", got.statuses)
	}
	within.Until(t, "all have run", func() bool { return s.run("len(ran)") == "10" }) // runs of others may come before the last ones
	if ran := s.run("ran == list(range(10))"); ran != "True" {
		t.Errorf("the order is %s", s.run("ran"))
	}
	s.workHonestly()
	s.end(want)
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

// Whoever holds a request back, or has a wrong clock, gets a refusal that says the time.
func TestClockGames(t *testing.T) {
	s := newStand(t)
	var want []int
	n := 0
	deliverAt := func(created time.Time) answered {
		n++
		return ask(t, s.address, n, s.captureOf(http.MethodPost, contract.PathExecutions, submitOf(n), created).last())
	}
	now := time.Now()
	for _, off := range []time.Duration{0, time.Minute} {
		for _, sign := range []time.Duration{-1, 1} {
			if got := deliverAt(now.Add(sign * off)); got.statuses != "200" {
				t.Errorf("%v off: answered %s", sign*off, got.statuses)
			}
			want = append(want, n)
		}
	}
	refused := []time.Time{
		time.Unix(0, 0), time.Unix(-1, 0), time.Unix(1<<33, 0), time.Unix(1<<63-1, 0), time.Unix(-1<<63, 0), {},
	}
	for _, off := range []time.Duration{time.Hour, 365 * 24 * time.Hour} {
		refused = append(refused, now.Add(contract.ClockSkew+off), now.Add(-contract.ClockSkew-off))
	}
	for _, created := range refused {
		got := deliverAt(created)
		if got.statuses != "401" {
			t.Errorf("signed at %d: answered %s", created.Unix(), got.statuses)
		}
	}
	t.Logf("%d cases", n)
	s.workHonestly()
	s.end(want)
}
