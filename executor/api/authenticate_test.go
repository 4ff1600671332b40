package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/audit"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// Without the key, nothing about the secret, the clock, the paths or the methods may be
// learned.
func TestEveryUnauthorizedRequestGetsTheSameAnswer(t *testing.T) {
	s := newStand(t)
	sign := func(secret auth.Secret, req *http.Request, created time.Time) *http.Request {
		linetest.Seal(t, secret, req, nil, created)
		return req
	}
	good := func() *http.Request { return sign(s.secret, s.request("GET", contract.PathKernel, nil), time.Now()) }
	with := func(change func(*http.Request)) *http.Request {
		req := good()
		change(req)
		return req
	}
	other := auth.GenerateSecret()
	requests := map[string]*http.Request{
		"no signature":           s.request("GET", contract.PathKernel, nil),
		"unknown path":           s.request("GET", "/v1/nothing", nil),
		"wrong method":           s.request("DELETE", contract.PathKernel, nil),
		"another secret":         sign(other, s.request("GET", contract.PathKernel, nil), time.Now()),
		"another secret, skewed": sign(other, s.request("GET", contract.PathKernel, nil), time.Unix(1, 0)),
		"another query":          with(func(r *http.Request) { r.URL.RawQuery = "limit=1" }),
		"signature twice":        with(func(r *http.Request) { r.Header.Add("Signature", r.Header.Get("Signature")) }),
		"junk signature":         with(func(r *http.Request) { r.Header.Set("Signature", "sig1=:!!!:") }),
		"bearer token":           with(func(r *http.Request) { r.Header = http.Header{"Authorization": {"Bearer " + s.secret.Reveal()}} }),
		"key_id of ours, MAC of another": with(func(r *http.Request) {
			forged := sign(other, s.request("GET", contract.PathKernel, nil), time.Now())
			r.Header.Set("Signature", forged.Header.Get("Signature"))
		}),
		"body over the bound": s.request("POST", contract.PathExecutions, make([]byte, contract.MaxBodyBytes+1)),
	}
	var want, wantHeaders string
	n := 0
	for name, req := range requests {
		n++
		req.Header.Set(addrHeader, fmt.Sprintf("10.0.0.%d", n))
		res := s.do(req)
		id := res.Header.Get(contract.HeaderRequestID)
		got := strings.ReplaceAll(string(res.body), id, "ID")
		if res.StatusCode != http.StatusUnauthorized || res.error(t).Code != contract.CodeUnauthorized {
			t.Errorf("%s: answer is %d %s", name, res.StatusCode, res.body)
		}
		if want == "" {
			want, wantHeaders = got, headerNames(res.Header)
		}
		if got != want || headerNames(res.Header) != wantHeaders {
			t.Errorf("%s: answer differs:\n%s %s\nwant\n%s %s", name, headerNames(res.Header), got, wantHeaders, want)
		}
		if res.Header.Get("Signature") != "" || res.Header.Get(contract.HeaderInstance) != "" {
			t.Errorf("%s: an unauthorized caller is shown %v", name, res.Header)
		}
	}
}

// headerNames omits Connection, because net/http closes connections whose body it does not
// read.
func headerNames(h http.Header) string {
	var names []string
	for name := range h {
		if name != "Connection" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestAWrongClockGetsASignedAnswerWithTheServersTime(t *testing.T) {
	s := newStand(t)
	s.api.Attach(Backend{})
	before := time.Now().Unix()
	for name, created := range map[string]time.Time{
		"behind": time.Now().Add(-contract.ClockSkew - 10*time.Second),
		"ahead":  time.Now().Add(contract.ClockSkew + time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			res := s.signedAt(s.request("GET", "/v1/nothing", nil), nil, created)
			e := res.want(t, http.StatusUnauthorized, contract.CodeClockSkew)
			if e.ServerTime < before || e.ServerTime > time.Now().Unix() || !e.Retryable {
				t.Errorf("error is %+v", e)
			}
		})
	}
	res := s.signedAt(s.request("GET", "/v1/nothing", nil), nil, time.Now().Add(contract.ClockSkew-10*time.Second))
	res.want(t, http.StatusNotFound, contract.CodeNotFound)
}

func TestAnAnswerIsBoundToItsOwnRequest(t *testing.T) {
	s := standWith(t, echo)
	other, own := s.request("GET", "/x", nil), s.request("GET", "/x", nil)
	stranger, x := s.sign(other, nil, time.Now()), s.sign(own, nil, time.Now())
	res := s.do(own)
	if _, err := linetest.Open(stranger, res.Response, bytes.NewReader(res.body), false); err == nil {
		t.Fatal("an answer verifies for another request of the same content")
	}
	if _, err := linetest.Open(x, res.Response, bytes.NewReader(res.body), false); err != nil {
		t.Fatal(err)
	}
}

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

// audited gives the stand an audit log. entries ends the server, which may still record its last
// answer, then the log, and returns its lines.
func (s *stand) audited() (entries func() []map[string]any) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "audit.log")
	l, err := audit.Open(audit.Config{Path: path, KeyID: s.secret.KeyID(), Log: s.api.Log})
	must(s.t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	s.api.Audit = l
	return func() (all []map[string]any) {
		s.server.Close()
		end()
		<-ended
		raw, err := os.ReadFile(path)
		must(s.t, err)
		for _, line := range lines(string(raw)) {
			var entry map[string]any
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				s.t.Fatalf("line %q: %v", line, err)
			}
			all = append(all, entry)
		}
		return all[1 : len(all)-1] // without start and stop
	}
}

func TestEachSignedRequestIsRecordedAndNoOther(t *testing.T) {
	s := standWith(t, echo)
	entries := s.audited()
	s.do(s.request("GET", "/unsigned", nil))
	s.do(s.request("GET", contract.PathHealth, nil))
	forged := s.request("GET", "/forged", nil)
	s.sign(forged, nil, time.Now())
	forged.Header.Set("Signature", "sig1=:"+strings.Repeat("A", 43)+"=:")
	s.do(forged)

	ask := func(method, path string, body []byte, created time.Time) *http.Request {
		req := s.request(method, path, body)
		req.Header.Set(addrHeader, "203.0.113.7")
		s.signedAt(req, body, created)
		return req
	}
	ask("POST", "/echo?path=MARKER", []byte("MARKER"), time.Now())
	ask("GET", "/late", nil, time.Now().Add(-time.Hour))
	replayed := s.request("GET", "/replayed", nil)
	s.sign(replayed, nil, time.Now())
	s.do(replayed)
	s.do(replayed)
	changed := s.request("POST", "/changed", []byte("x"))
	s.sign(changed, []byte("x"), time.Now())
	changed.Body, changed.ContentLength = http.NoBody, 0
	s.do(changed)
	want := []struct {
		path, address, failure string
		status                 float64
	}{
		{"/echo", "203.0.113.7", "", 200},
		{"/late", "203.0.113.7", "clock_skew", 401},
		{"/replayed", "127.0.0.1", "", 200},
		{"/replayed", "127.0.0.1", "replayed", 401},
		{"/changed", "127.0.0.1", "bad_request", 400},
	}
	got := entries()
	if len(got) != len(want) {
		t.Fatalf("recorded %v", got)
	}
	for i, w := range want {
		e := got[i]
		if failure, _ := e["error"].(string); e["path"] != w.path || e["address"] != w.address || e["status"] != w.status || failure != w.failure {
			t.Errorf("%v, want %+v", e, w)
		}
		if e["key_id"] != s.secret.KeyID() || e["request_id"] == nil || e["caller"] == nil || e["bytes_sent"] == nil && e["status"] != 200. {
			t.Errorf("%v is not whole", e)
		}
	}
	if all, _ := json.Marshal(got); strings.Contains(string(all), "MARKER") {
		t.Errorf("the log holds query or body: %s", all)
	}
	if got[0]["bytes_received"] == nil {
		t.Errorf("%v has no size of its body", got[0])
	}
}

// The holder of a key may be hostile to the readers of the log.
func TestWhateverAKeyHolderSendsIsOneBoundedLine(t *testing.T) {
	s := standWith(t, echo)
	entries := s.audited()
	paths := []string{"/%0A%7B%22event%22:%22forged%22%7D", "/%1b%5B2J", "/%C2%9B31m", "/%E2%80%AE", "/%FF%00", "/" + strings.Repeat("x", 8000)}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", strings.Repeat("X", 1000)} {
			s.signed(s.request(method, path, nil), nil)
		}
	}
	got := entries()
	if len(got) != 3*len(paths) {
		t.Errorf("%d lines for %d requests", len(got), 3*len(paths))
	}
	for _, e := range got {
		if line, _ := json.Marshal(e); len(line) > 800 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
}
