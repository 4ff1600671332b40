package vm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/shared/auth"
	"colabrelay/shared/keep"
)

// providerPrefix precedes a backend's name in the provider of a runtime that is reached
// through its proxy.
const providerPrefix = "colab-"

// reach pairs the executor if it answers in this way with a signed answer.
func (a *creation) reach(ctx context.Context, w Way, ready readyExecutor, secret auth.Secret) error {
	r := pairing.Runtime{Name: a.rec.Name, URL: strings.TrimRight(ready.URL, "/"), Secret: secret}
	port, err := LocalPort(ready.LocalURL)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrLaunch, err)
	}
	limit := a.limits.tunnel
	if w == Proxy {
		limit, r.Provider, r.VMID = a.limits.proxy, providerPrefix+a.b.Name(), a.rec.ID
		if r.URL, err = a.b.(Proxied).Proxy(ctx, a.rec.ID, port); err != nil {
			return fmt.Errorf("%w: %v", ErrUnreachable, err)
		}
	}
	a.say("looking whether the executor answers by " + string(w))
	if err := a.awaitAnswer(ctx, r, limit); err != nil {
		return err
	}
	return a.pair(r, w)
}

// LocalPort returns the port of an executor's address on its own machine.
func LocalPort(address string) (int, error) {
	u, err := url.Parse(address)
	if err == nil && u.Scheme == "http" {
		if at, err := netip.ParseAddrPort(u.Host); err == nil && at.Addr().IsLoopback() && at.Port() > 0 {
			return int(at.Port()), nil
		}
	}
	return 0, fmt.Errorf("the executor's address %q is not as expected", plain.Line(address))
}

// awaitAnswer waits for an answer that the executor with this secret has signed.
func (m *Manager) awaitAnswer(ctx context.Context, r pairing.Runtime, limit time.Duration) error {
	c, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret, Transport: m.Transport(r)})
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnreachable, err)
	}
	defer c.Close()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	err = keep.Repeat(within, time.Second, func() (bool, error) {
		_, err := c.SignedHealth(within)
		if err != nil && (within.Err() == nil || last == nil) {
			last = err // not that the time is over
		}
		return err == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w at %s: %w", ErrUnreachable, plain.Line(r.URL), last)
	}
	return err
}

// pair stores the runtime. From then on tools and commands use it.
func (a *creation) pair(r pairing.Runtime, w Way) error {
	before, err := a.cfg.Pairings.PutIf(r, a.rec.mustBe)
	if before.Damage != nil {
		a.say(before.Damage.Error())
	}
	if err != nil {
		return err
	}
	return a.update(func(rec *Record) { rec.Step, rec.Via, rec.Failure = Paired, w, "" })
}

// check looks at a VM that was paired before. It returns done if its executor answers. An
// executor that has ended is to be started again; one that runs and does not answer is left
// alone, because it may hold a person's work.
func (a *creation) check(ctx context.Context) (done bool, err error) {
	r, err := a.cfg.Pairings.Get(a.rec.Name)
	if err == nil && a.rec.pairedAs(r) {
		a.say("looking whether the executor answers")
		if err = a.awaitAnswer(ctx, r, a.limits.check); err == nil {
			return true, nil
		}
	} else if err == nil {
		return false, fmt.Errorf("%w: %q is now another runtime; VM %s still runs", ErrNameTaken, a.rec.Name, a.rec.ID)
	}
	var e executorReport
	if err := a.call(ctx, &e, "poll", a.rec.ID, 0); err != nil {
		return false, err
	}
	if e.Running && !errors.Is(err, pairing.ErrNotPaired) {
		return false, fmt.Errorf("%w, although it runs on the VM; nothing was changed: %v", ErrUnreachable, err)
	}
	return false, nil
}

// mustBe returns ErrNameTaken for a runtime that is not this VM's executor.
func (r Record) mustBe(p pairing.Runtime) error {
	if r.pairedAs(p) {
		return nil
	}
	return fmt.Errorf("%w: meanwhile this computer was paired with another runtime named %q", ErrNameTaken, p.Name)
}

// pairedAs reports whether a runtime is this VM's executor.
func (r Record) pairedAs(p pairing.Runtime) bool { return slices.Contains(r.KeyIDs, p.Secret.KeyID()) }

// isPaired reports whether the runtime of a VM's name is its executor.
func (m *Manager) isPaired(r Record) bool {
	p, err := m.cfg.Pairings.Get(r.Name)
	return err == nil && r.pairedAs(p)
}

// Way is how the relay reaches the executor on a VM.
type Way string

// Ways.
const (
	AnyWay      Way = ""            // the first that works
	Proxy       Way = "proxy"       // Google's proxy, if the backend offers it
	Ngrok       Way = "ngrok"       // a tunnel of the user's account
	Cloudflared Way = "cloudflared" // a tunnel without an account, by a program on the VM
)

// Ways are all that a person may ask for.
var Ways = []Way{Proxy, Ngrok, Cloudflared}

// ParseWay reads one of Ways; empty is AnyWay.
func ParseWay(text string) (Way, error) {
	if w := Way(text); w == AnyWay || slices.Contains(Ways, w) {
		return w, nil
	}
	return AnyWay, fmt.Errorf("tunnel %q: use proxy, ngrok or cloudflared", shownID(text))
}

// ways returns what to try in turn. cloudflared says whether the VM has that program.
func (m *Manager) ways(b Backend, asked Way, cloudflared bool) (ways []Way, err error) {
	_, proxied := b.(Proxied)
	var lacks []string
	for _, way := range []struct {
		Way
		works bool
		lack  string
	}{
		{Proxy, proxied, fmt.Sprintf("the backend %s offers no proxy", b.Name())},
		{Ngrok, m.cfg.NgrokToken != "", "NGROK_AUTHTOKEN is not set"},
		{Cloudflared, cloudflared, "no program cloudflared is known to be on the VM"},
	} {
		switch {
		case asked != AnyWay && asked != way.Way:
		case way.works:
			ways = append(ways, way.Way)
		default:
			lacks = append(lacks, way.lack)
		}
	}
	if len(ways) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoTunnel, strings.Join(lacks, ", and "))
	}
	return ways, nil
}

// mayReach returns an error before a VM is asked for that nothing could reach. Whether the VM
// will have cloudflared is a guess, on which one is started only for a person who asks for it.
func (m *Manager) mayReach(b Backend, asked Way) error {
	_, err := m.ways(b, asked, asked == Cloudflared)
	return err
}

// flags are the executor's, for this way.
func (m *Manager) flags(w Way) []string {
	switch {
	case w == Proxy:
		return []string{"--tunnel", "none"}
	case w == Ngrok && m.cfg.NgrokDomain != "":
		return []string{"--tunnel", "ngrok", "--domain", m.cfg.NgrokDomain}
	}
	return []string{"--tunnel", string(w)}
}

// Transport returns what makes the connections to a runtime that is reached through a
// backend's proxy; nil for all others. It opens nothing before the first request.
func (m *Manager) Transport(r pairing.Runtime) http.RoundTripper {
	name, ok := strings.CutPrefix(r.Provider, providerPrefix)
	if !ok {
		return nil
	}
	b, err := m.cfg.Open(name)
	if err != nil {
		return failing{err}
	}
	proxied, ok := b.(Proxied)
	if !ok {
		return failing{fmt.Errorf("the backend %s offers no proxy", name)}
	}
	return proxied.Transport(r.VMID)
}

// failing is the transport of a runtime that cannot be reached.
type failing struct{ err error }

// RoundTrip implements http.RoundTripper.
func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, f.err
}
