// Package tunneltest is for tests only: the conformance suite that every kind of
// tunnel passes, and what the tests of the kinds share.
//
// It must not be linked into a program. Start reading at Run.
package tunneltest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel"
	"colabrelay/shared/within"
)

// Rig is a tunnel together with the other end of its connection. What a kind of tunnel never meets is
// nil.
type Rig struct {
	Tunnel tunnel.Tunnel // with short delays
	Drop   func()        // cuts its connection
	Change func()        // makes its URL change
	Refuse func()        // makes the operator refuse every new connection for good
	Local  bool          // its visitors come from this machine
	Leaks  []goleak.Option
}

// Run runs the suite. newRig makes a rig for each conformance.
func Run(t *testing.T, newRig func(*testing.T) Rig) {
	rig := newRig(t)
	visitors := rig.Tunnel.ReportsVisitor()
	for _, c := range []struct {
		name string
		is   bool // so of this kind
		run  func(t *testing.T, r Rig)
	}{
		{"serves many visitors concurrently", true, servesMany},
		{"ends with its context", true, endsWithItsContext},
		{"reconnects after a drop", rig.Drop != nil, reconnects},
		{"reports a changed URL", rig.Change != nil, reportsChangedURL},
		{"ends when it is refused from the start", rig.Refuse != nil, endsWhenRefused},
		{"ends when it is refused later", rig.Refuse != nil, endsWhenRefusedLater},
		{"reports the visitor", visitors, reportsVisitor},
		{"allows visitors by address", visitors, allowsByAddress},
	} {
		if c.is {
			t.Run(c.name, func(t *testing.T) { c.run(t, newRig(t)) })
		}
	}
}

func servesMany(t *testing.T, r Rig) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, req.URL.Query().Get("n")) })
	url := Start(t, r.Tunnel, echo).URL()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			if _, body, err := Visit(fmt.Sprintf("%s/?n=%d", url, n)); err != nil || body != fmt.Sprint(n) {
				t.Errorf("visitor %d got %q, %v", n, body, err)
			}
		})
	}
	all.Wait()
}

func endsWithItsContext(t *testing.T, r Rig) {
	before := goleak.IgnoreCurrent()
	running := Start(t, r.Tunnel, Hello)
	url := running.URL()
	if status, _, err := Visit(url); err != nil || status != http.StatusOK {
		t.Fatalf("got %d, %v", status, err)
	}
	if err := running.Stop(); err != nil {
		t.Errorf("after its context ended, Run returned %v", err)
	}
	if status, _, err := Visit(url); err == nil && status == http.StatusOK {
		t.Error("the URL still answers")
	}
	running.server.Close()
	goleak.VerifyNone(t, append([]goleak.Option{before}, r.Leaks...)...)
}

func reconnects(t *testing.T, r Rig) {
	running := Start(t, r.Tunnel, Hello)
	url := running.URL()
	for range 3 {
		r.Drop()
		within.Until(t, "the URL answers again", func() bool {
			url = running.Latest(url)
			_, body, err := Visit(url)
			return err == nil && body == "hello"
		})
	}
}

func reportsChangedURL(t *testing.T, r Rig) {
	running := Start(t, r.Tunnel, Hello)
	old := running.URL()
	r.Change()
	now := running.URL()
	if now == old {
		t.Fatalf("both are %s", now)
	}
	if _, body, err := Visit(now); err != nil || body != "hello" {
		t.Errorf("the new URL gave %q, %v", body, err)
	}
}

func endsWhenRefused(t *testing.T, r Rig) {
	r.Refuse()
	Start(t, r.Tunnel, Hello).Refused()
}

func endsWhenRefusedLater(t *testing.T, r Rig) {
	running := Start(t, r.Tunnel, Hello)
	running.URL()
	r.Refuse()
	r.Drop()
	running.Refused()
}

func reportsVisitor(t *testing.T, r Rig) {
	url := Start(t, r.Tunnel, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		host, _, _ := net.SplitHostPort(req.RemoteAddr)
		fmt.Fprint(w, cmp.Or(tunnel.ClientAddr(req), host))
	})).URL()
	for _, from := range []string{"127.0.0.9", "127.0.0.10"} {
		if _, body := VisitWithForgedHeaders(t, url, from); body != from {
			t.Errorf("a visitor from %s is reported as %q", from, body)
		}
	}
}

func allowsByAddress(t *testing.T, r Rig) {
	allowed := netip.MustParsePrefix("127.0.0.8/31")
	url := Start(t, r.Tunnel, tunnel.Restrict([]netip.Prefix{allowed}, Hello)).URL()
	if status, body := VisitWithForgedHeaders(t, url, "127.0.0.9"); status != http.StatusOK {
		t.Errorf("an allowed visitor got %d %q", status, body)
	}
	status, body := VisitWithForgedHeaders(t, url, "127.0.0.10")
	if r.Local != (status == http.StatusOK) {
		t.Errorf("another visitor got %d %q", status, body)
	}
}

// Refused waits for the tunnel's end and returns the refusal that ended it.
func (r *Running) Refused() *tunnel.Refused {
	r.t.Helper()
	err := r.Ended()
	var refused *tunnel.Refused
	if !errors.As(err, &refused) {
		r.t.Fatalf("it ended with %v", err)
	}
	if text := err.Error(); strings.ContainsAny(text, "\r\n") || len(text) < 40 {
		r.t.Errorf("the refusal does not say in one line what to do: %q", text)
	}
	return refused
}
