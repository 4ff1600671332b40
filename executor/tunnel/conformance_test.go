package tunnel

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/executor/tunnel/ngroktest"
)

// rig is a kind of tunnel with what stands on its other side: for ngrok an edge
// of our own under the real SDK, for ssh a real sshd, for cloudflared a
// stand-in for its program.
type rig struct {
	config  Config
	quicken func(Tunnel) // makes its waits short
	drop    func()       // cuts its link
	change  func()       // makes its URL another one
	refuse  func()       // refuses whoever comes from now on, for good
}

var rigs = map[Kind]func(*testing.T) rig{
	KindNone: func(*testing.T) rig {
		return rig{config: Config{Kind: KindNone, Listen: "127.0.0.1:0"}, quicken: func(Tunnel) {}}
	},
	KindNgrok: func(t *testing.T) rig {
		edge := ngroktest.Start(t)
		return rig{
			config:  edgeConfig(edge),
			quicken: func(tun Tunnel) { tun.(*ngrokTunnel).retry = quickRetry },
			drop:    edge.DropSessions,
			change:  func() { edge.StopTunnel("", "stopped in the dashboard") },
			refuse:  func() { edge.RefuseToken("ERR_NGROK_107") },
		}
	},
	KindSSH: func(t *testing.T) rig {
		s := startSSHD(t)
		return rig{
			config:  s.Config(),
			quicken: func(tun Tunnel) { tun.(*sshTunnel).retry = quickRetry },
			drop:    s.wire.Cut,
			change:  s.wire.Cut, // the server chooses a port anew
			refuse:  func() { s.authorize(s.writeKey(filepath.Join(s.home, "another"))) },
		}
	},
	KindCloudflared: func(t *testing.T) rig {
		f := installStandIn(t)
		return rig{
			config: Config{Kind: KindCloudflared},
			quicken: func(tun Tunnel) {
				c := tun.(*cloudflaredTunnel)
				c.retry, c.patience = quickRetry, 10*quickRetry
			},
			drop:   f.Kill,
			change: f.Kill,
			refuse: func() { f.Behave("limited") },
		}
	},
}

const quickRetry = 20 * time.Millisecond

// conformance is one thing that a tunnel does; trait names the field of Traits
// that declares it, and is empty for what every kind does.
type conformance struct {
	name, trait string
	run         func(t *testing.T, r rig, tun Tunnel)
}

var conformances = []conformance{
	{"is up and serves many at once", "", servesMany},
	{"hands on each flush at once", "", handsOnFlushes},
	{"lets answers under way arrive", "", letsAnswersArrive},
	{"ends with its context", "", endsWithItsContext},
	{"comes back after a drop", "Drops", comesBack},
	{"reports a changed URL", "ChangesURL", reportsChangedURL},
	{"ends when it is refused from the start", "Refuses", endsWhenRefused},
	{"ends when it is refused later", "Refuses", endsWhenRefusedLater},
	{"tells who visits", "TellsVisitor", tellsVisitor},
	{"lets in by address", "TellsVisitor", letsInByAddress},
}

func TestEveryTunnel(t *testing.T) {
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			set, ok := rigs[kind]
			if !ok {
				t.Fatal("nothing tests this kind")
			}
			declared := declaredTraits(set(t).config.Traits())
			ran := map[string]bool{}
			for _, c := range conformances {
				if c.trait != "" && !declared[c.trait] {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					ran[c.trait] = true
					r := set(t)
					tun := mustNew(t, r.config)
					r.quicken(tun)
					c.run(t, r, tun)
				})
			}
			for trait := range declared {
				if !ran[trait] && !singledOut() {
					t.Errorf("%s is declared, and nothing tests it", trait)
				}
			}
		})
	}
}

// declaredTraits are the names of the fields that are true.
func declaredTraits(traits Traits) map[string]bool {
	declared := map[string]bool{}
	v := reflect.ValueOf(traits)
	for i := range v.NumField() {
		if v.Field(i).Bool() {
			declared[v.Type().Field(i).Name] = true
		}
	}
	return declared
}

// singledOut says whether a person runs one conformance only.
func singledOut() bool { return strings.Count(flag.Lookup("test.run").Value.String(), "/") > 1 }

func servesMany(t *testing.T, _ rig, tun Tunnel) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { fmt.Fprint(w, req.URL.Query().Get("n")) })
	url := start(t, tun, echo).url(t)
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			if _, body, err := visit(t, fmt.Sprintf("%s/?n=%d", url, n)); err != nil || body != fmt.Sprint(n) {
				t.Errorf("visitor %d got %q, %v", n, body, err)
			}
		})
	}
	all.Wait()
}

func handsOnFlushes(t *testing.T, _ rig, tun Tunnel) {
	seen := make(chan struct{})
	url := start(t, tun, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-seen
		fmt.Fprint(w, "last")
	})).url(t)
	res, err := newVisitor("").Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, len("first"))
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
		t.Fatalf("read %q, %v", first, err)
	}
	close(seen)
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != "last" {
		t.Fatalf("read %q, %v", rest, err)
	}
}

func letsAnswersArrive(t *testing.T, _ rig, tun Tunnel) {
	entered, finish := make(chan struct{}), make(chan struct{})
	r := start(t, tun, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-finish
		fmt.Fprint(w, "in time")
	}))
	url := r.url(t)
	answer := make(chan string, 1)
	go func() {
		_, body, err := visit(t, url)
		answer <- fmt.Sprint(body, err)
	}()
	<-entered
	shut := make(chan error, 1)
	go func() { shut <- r.server.Shutdown(t.Context()) }()
	until(t, "no new visitor is let in", func() bool {
		status, _, err := visit(t, url)
		return err != nil || status != http.StatusOK
	})
	close(finish)
	if err := <-shut; err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != "in time<nil>" {
		t.Errorf("the answer under way was %q", got)
	}
	r.stop(t)
	if r.err != nil {
		t.Errorf("an ended context gave the error %v", r.err)
	}
}

func endsWithItsContext(t *testing.T, _ rig, tun Tunnel) {
	before := goleak.IgnoreCurrent()
	r := start(t, tun, hello)
	url := r.url(t)
	if status, _, err := visit(t, url); err != nil || status != http.StatusOK {
		t.Fatalf("got %d, %v", status, err)
	}
	r.stop(t)
	if r.err != nil {
		t.Errorf("an ended context gave the error %v", r.err)
	}
	if status, _, err := visit(t, url); err == nil && status == http.StatusOK {
		t.Error("the URL still answers")
	}
	r.server.Close()
	edges := goleak.IgnoreAnyFunction("colabrelay/executor/tunnel/ngroktest.(*Edge).openPublic.func1")
	goleak.VerifyNone(t, append([]goleak.Option{before, edges}, lateGoroutines...)...)
}

func comesBack(t *testing.T, r rig, tun Tunnel) {
	running := start(t, tun, hello)
	url := running.url(t)
	for range 3 {
		r.drop()
		until(t, "it answers again", func() bool {
			url = running.latest(url)
			_, body, err := visit(t, url)
			return err == nil && body == "hello"
		})
	}
}

func reportsChangedURL(t *testing.T, r rig, tun Tunnel) {
	running := start(t, tun, hello)
	old := running.url(t)
	r.change()
	now := running.url(t)
	if now == old {
		t.Fatalf("both are %s", now)
	}
	if _, body, err := visit(t, now); err != nil || body != "hello" {
		t.Errorf("the new URL gave %q, %v", body, err)
	}
}

func endsWhenRefused(t *testing.T, r rig, tun Tunnel) {
	r.refuse()
	endsRefused(t, start(t, tun, hello))
}

func endsWhenRefusedLater(t *testing.T, r rig, tun Tunnel) {
	running := start(t, tun, hello)
	running.url(t)
	r.refuse()
	r.drop()
	endsRefused(t, running)
}

func endsRefused(t *testing.T, r *running) {
	t.Helper()
	err := r.ended(t)
	if !errors.As(err, new(*Refused)) {
		t.Fatalf("it ended with %v", err)
	}
	if text := err.Error(); strings.ContainsAny(text, "\r\n") || len(text) < 40 {
		t.Errorf("it does not say in one line what to do: %q", text)
	}
}

func tellsVisitor(t *testing.T, _ rig, tun Tunnel) {
	url := start(t, tun, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprint(w, cmp.Or(ClientAddr(req), hostOf(req.RemoteAddr).String()))
	})).url(t)
	for _, from := range []string{"127.0.0.9", "127.0.0.10"} {
		if _, body := lie(t, url, from); body != from {
			t.Errorf("a visitor from %s is told as %q", from, body)
		}
	}
}

func letsInByAddress(t *testing.T, r rig, tun Tunnel) {
	allowed, err := ParseCIDR("127.0.0.8/31")
	if err != nil {
		t.Fatal(err)
	}
	url := start(t, tun, Restrict([]netip.Prefix{allowed}, hello)).url(t)
	if status, body := lie(t, url, "127.0.0.9"); status != http.StatusOK {
		t.Errorf("a visitor of the list got %d %q", status, body)
	}
	status, body := lie(t, url, "127.0.0.10")
	if local := r.config.Kind == KindNone; local != (status == http.StatusOK) {
		t.Errorf("a visitor from elsewhere got %d %q", status, body)
	}
}

// lie visits from an address with headers that tell another.
func lie(t *testing.T, url, from string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Cf-Connecting-Ip", "True-Client-Ip"} {
		req.Header.Set(name, "127.0.0.8")
	}
	res, err := newVisitor(from).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
