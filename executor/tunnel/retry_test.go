package tunnel

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

func TestTheGiveUpTimerStartsAtTheFirstRefusalSinceTheTunnelWasUp(t *testing.T) {
	now := time.Now()
	status := &Status{giveUp: 3 * time.Minute, now: func() time.Time { return now }}
	refused := fmt.Errorf("log in: %w", &Refused{Temporary: true})
	step := func(d time.Duration, want bool) {
		t.Helper()
		now = now.Add(d)
		if got := status.Refusal(refused) != nil; got != want {
			t.Fatalf("gave up: %t, want %t", got, want)
		}
	}
	step(0, false)
	step(2*time.Minute, false)
	if status.Refusal(errors.New("no route to host")) != nil {
		t.Fatal("a network fault ended the tunnel")
	}
	status.Up()
	step(2*time.Minute, false)
	step(2*time.Minute, false)
	step(time.Minute, true)
}

func TestParseCIDR(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.7": "203.0.113.7/32", "203.0.113.9/24": "203.0.113.0/24", " 2001:db8::1 ": "2001:db8::1/128",
		"2001:db8::/32": "2001:db8::/32", "::ffff:203.0.113.7": "203.0.113.7/32", "0.0.0.0/0": "0.0.0.0/0",
		"": "", "203.0.113.0/33": "", "203.0.113": "", "host": "", "fe80::1%eth0": "", "::ffff:1.2.3.0/120": "",
	} {
		got, err := ParseCIDR(text)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("ParseCIDR(%q) = %v, %v", text, got, err)
		}
	}
}

func TestRestrict(t *testing.T) {
	allowed := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	for name, c := range map[string]struct {
		remote  string // of a connection at --listen
		visitor *visitor
		header  []string // Cf-Connecting-Ip
		in      bool
	}{
		"in a range":                             {remote: "203.0.113.9:1", in: true},
		"in a range, IPv6":                       {remote: "[2001:db8::9]:1", in: true},
		"in no range":                            {remote: "198.51.100.1:1"},
		"this machine":                           {remote: "127.0.0.1:1", in: true},
		"through a tunnel, in a range":           {remote: "127.0.0.1:1", visitor: &visitor{addr: netip.MustParseAddr("203.0.113.1")}, in: true},
		"through a tunnel, in no range":          {remote: "127.0.0.1:1", visitor: &visitor{addr: netip.MustParseAddr("198.51.100.1")}},
		"through a tunnel, from loopback":        {remote: "127.0.0.1:1", visitor: &visitor{addr: netip.MustParseAddr("127.0.0.1")}},
		"through a tunnel, not reported":         {remote: "127.0.0.1:1", visitor: &visitor{}},
		"through cloudflared, in a range":        {remote: "127.0.0.1:1", visitor: &visitor{header: "Cf-Connecting-Ip"}, header: []string{"2001:db8::5"}, in: true},
		"through cloudflared, not reported":      {remote: "127.0.0.1:1", visitor: &visitor{header: "Cf-Connecting-Ip"}},
		"through cloudflared, reported twice":    {remote: "127.0.0.1:1", visitor: &visitor{header: "Cf-Connecting-Ip"}, header: []string{"203.0.113.1", "203.0.113.1"}},
		"without a tunnel, cloudflared's header": {remote: "198.51.100.1:1", header: []string{"203.0.113.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.RemoteAddr = c.remote
			for _, value := range c.header {
				req.Header.Add("Cf-Connecting-Ip", value)
			}
			if c.visitor != nil {
				req = req.WithContext(withVisitor(req.Context(), *c.visitor))
			}
			w := httptest.NewRecorder()
			Restrict(allowed, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, req)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[c.in]; w.Code != want {
				t.Errorf("got %d %q", w.Code, w.Body)
			}
		})
	}
}
