package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// asked passes a signed request to the whole chain, without a network, and returns the
// status.
func (s *stand) asked(req *http.Request) int {
	w := httptest.NewRecorder()
	s.api.authenticated(http.HandlerFunc(echo)).ServeHTTP(w, req)
	return w.Code
}

// signedRequest is req, sealed and signed.
func (s *stand) signedRequest(req *http.Request, created time.Time) *http.Request {
	s.t.Helper()
	s.sign(req, nil, created)
	return req
}

// An attacker who has captured a request of the owner can send it again and again. That
// must not use up the owner's limit.
func TestRepeatedRequestsDoNotLockTheOwnerOut(t *testing.T) {
	tier.Long(t)
	s := standWith(t, echo)
	elsewhere := contract.Instance{ID: "instance-2", Start: "start-1"}
	earlier := contract.Instance{ID: "instance-1", Start: "start-0"}
	captured := map[string]func() *http.Request{
		"a replay":             func() *http.Request { return s.signedRequest(s.request("GET", "/x", nil), time.Now()) },
		"an old one":           func() *http.Request { return s.signedRequest(s.request("GET", "/x", nil), time.Now().Add(-time.Hour)) },
		"one for another VM":   func() *http.Request { return s.signedFor(elsewhere) },
		"one before a restart": func() *http.Request { return s.signedFor(earlier) },
	}
	for name, capture := range captured {
		t.Run(name, func(t *testing.T) {
			req := capture()
			h := s.api.authenticated(http.HandlerFunc(echo))
			s.api.signed.now = func() time.Time { return s.api.signed.refilled } // no token is added
			before := s.api.signed.tokens
			for range 2 * maxRefusedPerMinute {
				h.ServeHTTP(httptest.NewRecorder(), req)
			}
			if used := before - s.api.signed.tokens; used > 1 { // a captured GET passes once
				t.Errorf("refused requests used %v of the owner's tokens", used)
			}
			s.wantOwnerIn(t)
		})
	}
	t.Run("strangers too", func(t *testing.T) {
		for range maxUnsignedPerMinute + 1 {
			s.do(s.request("GET", "/x", nil))
		}
		s.do(s.request("GET", "/x", nil)).want(t, http.StatusTooManyRequests, contract.CodeRateLimited)
		s.wantOwnerIn(t)
	})
}

// signedFor is a request that changes something, signed for another executor.
func (s *stand) signedFor(instance contract.Instance) *http.Request {
	req := s.request("POST", "/x", nil)
	req.Header.Set(contract.HeaderInstance, instance.String())
	return s.signedRequest(req, time.Now())
}

func (s *stand) wantOwnerIn(t *testing.T) {
	t.Helper()
	for _, method := range []string{"GET", "POST"} {
		if res := s.signed(s.request(method, "/x", nil), nil); res.StatusCode != http.StatusOK {
			t.Errorf("the owner's %s is answered %d %s", method, res.StatusCode, res.body)
		}
	}
}

// Unsigned, refused and verified requests each have their own limit, even if all come from
// one address, as behind an ssh tunnel.
func TestTheThreeLimitsDoNotTouchEachOther(t *testing.T) {
	tier.Long(t)
	s := standWith(t, echo)
	s.api.signed.stop()
	stranger := func() int { return s.asked(s.request("GET", "/x", nil)) }
	replay := s.signedRequest(s.request("GET", "/x", nil), time.Now().Add(-time.Hour))
	refused := func() int { return s.asked(replay) }
	owner := func() int { return s.asked(s.signedRequest(s.request("GET", "/x", nil), time.Now())) }
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
}

// While a client exhausts the limit of refusals, a relay of the owner with a wrong clock, or
// from before a restart, still learns how to sign correctly.
func TestOverTheLimitOfRefusalsTheOwnerLearnsTimeAndInstance(t *testing.T) {
	s := standWith(t, echo)
	s.api.clock.wall = s.api.clock.wall.Add(-time.Hour)
	old := s.signedRequest(s.request("GET", "/x", nil), time.Now())
	for range maxRefusedPerMinute {
		s.asked(old)
	}
	res := s.signedAt(s.request("POST", "/x", nil), nil, time.Now())
	e := res.want(t, http.StatusTooManyRequests, contract.CodeRateLimited)
	if !e.Retryable || res.Header.Get(contract.HeaderInstance) != s.api.Instance.String() {
		t.Errorf("error %+v of %q", e, res.Header.Get(contract.HeaderInstance))
	}
	if res := s.signedAt(s.request("POST", "/x", nil), nil, time.Unix(e.ServerTime, 0)); res.StatusCode != http.StatusOK {
		t.Errorf("signed by server_time: %d %s", res.StatusCode, res.body)
	}
}

func TestABodyThatDoesNotOpenCountsAsARefusal(t *testing.T) {
	s := standWith(t, echo)
	for range maxRefusedPerMinute {
		s.asked(s.signedRequest(s.request("GET", "/x", nil), time.Now().Add(-time.Hour)))
	}
	req := s.request("POST", "/x", nil)
	x := s.sign(req, []byte("good"), time.Now())
	setBody(req, []byte("evil"))
	s.opened(req, x).want(t, http.StatusTooManyRequests, contract.CodeRateLimited)
	s.wantOwnerIn(t)
}

func TestRequestsForAnotherExecutorGetASignedRefusal(t *testing.T) {
	s := standWith(t, func(http.ResponseWriter, *http.Request) { t.Error("the request reached the handler") })
	for instance, code := range map[string]contract.Code{
		"instance-1/start-0": contract.CodeNewStart,
		"instance-2/start-1": contract.CodeNewInstance,
		"instance-2/start-2": contract.CodeNewInstance,
	} {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
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

// The VM's clock was an hour ahead when the executor started, and NTP has corrected it since.
// The executor continues with its own time and reports it.
func TestNoRequestIsRefusedWhenTheClockIsCorrected(t *testing.T) {
	s := standWith(t, echo)
	s.api.clock = clock{wall: time.Now().Add(time.Hour), start: time.Now()}
	e := s.signed(s.request("GET", "/x", nil), nil).want(t, http.StatusUnauthorized, contract.CodeClockSkew)
	reported := time.Unix(e.ServerTime, 0)
	if ahead := time.Until(reported); ahead < 59*time.Minute || ahead > 61*time.Minute {
		t.Errorf("server_time is %v ahead", ahead)
	}
	if res := s.signedAt(s.request("POST", "/x", nil), nil, reported); res.StatusCode != http.StatusOK {
		t.Errorf("signed by server_time: %d %s", res.StatusCode, res.body)
	}
}

// A request that was signed before the executor started, within the allowed clock skew, is
// accepted.
func TestATimeBeforeTheStartIsAccepted(t *testing.T) {
	s := standWith(t, echo)
	for _, ago := range []time.Duration{time.Second, time.Minute, contract.ClockSkew - 10*time.Second} {
		for _, method := range []string{"GET", "POST"} {
			if res := s.signedAt(s.request(method, "/x", nil), nil, time.Now().Add(-ago)); res.StatusCode != http.StatusOK {
				t.Errorf("%s signed %v ago: %d %s", method, ago, res.StatusCode, res.body)
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
