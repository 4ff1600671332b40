package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// signedRequest is req, sealed and signed.
func (s *stand) signedRequest(req *http.Request, created time.Time) *http.Request {
	s.t.Helper()
	s.sign(req, nil, created)
	return req
}

// Unsigned, refused and verified requests each have their own limit, even if all come from
// one address, as behind an ssh tunnel.
func TestTheThreeLimitsDoNotTouchEachOther(t *testing.T) {
	timeless(t, func(t *testing.T, s *stand) {
		stranger := func() int { return s.do(s.request("GET", "/x", nil)).StatusCode }
		replay := s.signedRequest(s.request("GET", "/x", nil), time.Now().Add(-time.Hour))
		refused := func() int { return s.do(replay).StatusCode }
		owner := func() int { return s.do(s.signedRequest(s.request("GET", "/x", nil), time.Now())).StatusCode }
		for _, one := range []struct {
			name  string
			ask   func() int
			limit int
			want  int
		}{
			{"strangers", stranger, maxUnsignedPerMinute, http.StatusUnauthorized},
			{"refused requests", refused, maxRefusedPerMinute, http.StatusUnauthorized},
			{"the owner", owner, maxKeyBurst, http.StatusOK},
		} {
			for i := range one.limit {
				if status := one.ask(); status != one.want {
					t.Fatalf("%s: request %d is answered %d", one.name, i+1, status)
				}
			}
			if status := one.ask(); status != http.StatusTooManyRequests {
				t.Errorf("%s: one past the limit is answered %d", one.name, status)
			}
		}
	})
}

// While a client exhausts the limit of refusals, a relay of the owner with a wrong clock, or
// from before a restart, still learns how to sign correctly.
func TestOverTheLimitOfRefusalsTheOwnerLearnsTimeAndInstance(t *testing.T) {
	timeless(t, func(t *testing.T, s *stand) {
		s.api.clock.wall = s.api.clock.wall.Add(-time.Hour)
		old := s.signedRequest(s.request("GET", "/x", nil), time.Now())
		for range maxRefusedPerMinute {
			s.do(old)
		}
		res := s.signedAt(s.request("POST", "/x", nil), nil, time.Now())
		e := res.want(t, http.StatusTooManyRequests, contract.CodeRateLimited)
		if !e.Retryable || res.Header.Get(contract.HeaderInstance) != s.api.Instance.String() {
			t.Errorf("error %+v of %q", e, res.Header.Get(contract.HeaderInstance))
		}
		if res := s.signedAt(s.request("POST", "/x", nil), nil, time.Unix(e.ServerTime, 0)); res.StatusCode != http.StatusOK {
			t.Errorf("signed by server_time: %d %s", res.StatusCode, res.body)
		}
	})
}

func TestRequestsForAnotherExecutorGetASignedRefusal(t *testing.T) {
	s := standWith(t, func(http.ResponseWriter, *http.Request) { t.Error("the request reached the handler") })
	for instance, code := range map[string]contract.Code{
		"instance-1/start-0": contract.CodeNewStart,
		"instance-2/start-1": contract.CodeNewInstance,
	} {
		for _, method := range []string{"POST", "PUT"} {
			req := s.request(method, "/x", nil)
			req.Header.Set(contract.HeaderInstance, instance)
			res := s.signed(req, nil)
			res.want(t, http.StatusConflict, code)
			if got := res.Header.Get(contract.HeaderInstance); got != "instance-1/start-1" {
				t.Errorf("the refusal names %q", got)
			}
		}
	}
}

func TestTheClockFollowsTheMonotonicReading(t *testing.T) {
	start := time.Now()
	for _, step := range []time.Duration{-24 * time.Hour, 0, time.Hour} {
		c := clock{wall: start.Round(0).Add(step), start: start}
		before := time.Since(start)
		got := c.now().Sub(start.Round(0).Add(step))
		if after := time.Since(start); got < before || got > after {
			t.Errorf("with a wall clock %v off: %v have passed, want %v to %v", step, got, before, after)
		}
	}
	if c := newClock(start); fmt.Sprint(c.wall) != fmt.Sprint(start.Round(0)) || c.start != start {
		t.Errorf("clock %+v of %v", c, start)
	}
}
