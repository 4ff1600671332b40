package remoterun

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

const secret = "a secret of relay/remoterun's tests, 32 bytes or more"

// pool has the executors that the tests share.
var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

const endless = "import time\nfor i in range(600):\n  print('here', flush=True)\n  time.sleep(0.1)"

// startVM returns the address of an executor that the test has for itself.
func startVM(t *testing.T) string {
	t.Helper()
	return pool.Borrow(t, stacks.Old(t).Python).Ready.LocalURL
}

// newClient returns a client of an executor. onAttempt may be nil.
func newClient(t *testing.T, url string, onAttempt func(error)) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: url, Secret: testSecret(t), OnAttempt: onAttempt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testSecret(t *testing.T) auth.Secret {
	t.Helper()
	s, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// interrupt ends a run that its test abandoned, which would keep the executor busy.
func interrupt(t *testing.T, vm string, r *run) {
	t.Helper()
	if _, err := newClient(t, vm, nil).Interrupt(t.Context(), r.answer.ExecutionID); err != nil {
		t.Error(err)
	}
}

// console is a person who types nothing.
type console struct{ out, err harness.Output }

func (c *console) console(t *testing.T) Console {
	return Console{Streams: terminal.Streams{In: strings.NewReader(""), Out: &c.out, Err: &c.err}, PictureDir: t.TempDir()}
}

// front is a proxy of the executor at target. If cut returns true, it breaks the
// connection instead of answering.
func front(t *testing.T, target func() string, cut func() bool) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, err := url.Parse(target())
		if err != nil {
			t.Error(err)
			return
		}
		r.SetURL(to)
		r.Out.Host = r.In.Host // the signature covers it
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cut() {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestARunSurvivesBrokenConnections(t *testing.T) {
	tier.Long(t)
	vm := startVM(t)
	var requests, cuts atomic.Int64
	everyThird := func() bool { return requests.Add(1)%3 == 0 && cuts.Add(1) > 0 }
	address := front(t, func() string { return vm }, everyThird)
	var c console
	err := Run(t.Context(), VM{Runtime: "vm", Client: newClient(t, address, nil)},
		Code{Text: "import time\nfor i in range(8):\n  print(i, flush=True)\n  time.sleep(0.3)", Timeout: time.Minute}, c.console(t))
	if err != nil || c.out.String() != "0\n1\n2\n3\n4\n5\n6\n7\n" || cuts.Load() < 2 {
		t.Errorf("%d cuts: %v %q %q", cuts.Load(), err, c.out.String(), c.err.String())
	}
}

// A person's run must not keep an agent from being warned of a new kernel.
func TestPeopleAndAgentsAreWarnedSeparately(t *testing.T) {
	env := map[string]string{"COLAB_URL": startVM(t), "COLAB_SECRET": secret}
	store := pairing.Open(t.TempDir())
	pool := runtimes.New(runtimes.Config{Getenv: func(name string) string { return env[name] }, Pairings: store})
	defer pool.Close()
	target, err := pool.Resolve("")
	if err != nil {
		t.Fatal(err)
	}
	vm := VM{Runtime: target.Name, Client: target.Client, LastSeen: pool.LastSeen(runtimes.People)}
	run := func() {
		t.Helper()
		var c console
		if err := Run(t.Context(), vm, Code{Text: "1", Timeout: time.Minute}, c.console(t)); err != nil {
			t.Error(err)
		}
	}
	newest := pairing.Runtime{Name: pairing.EnvName, Secret: testSecret(t)}.Key()
	run()
	if seen := store.LastSeen(newest); seen.KernelID == "" || seen.InstanceID == "" {
		t.Errorf("the run was not recorded: %+v", seen)
	}
	agents := pool.LastSeen(runtimes.Agents)
	agents.Save(pairing.EnvName, pairing.LastSeen{InstanceID: "vm-0", KernelID: "old"})
	run()
	if seen := agents.Load(pairing.EnvName); seen.KernelID != "old" {
		t.Errorf("an agent would not be warned of the new kernel: %+v", seen)
	}
	if store.LastSeen(newest).KernelID == "old" {
		t.Error("the doctor would report a loss that is no longer true")
	}
}

func TestAnInterruptWithoutConnectionIsReported(t *testing.T) {
	tier.Long(t)
	vm := startVM(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var dark, failed atomic.Bool
	address := front(t, func() string { return vm }, dark.Load)
	var c console
	toVM := newClient(t, address, func(err error) { failed.Store(err != nil) })
	r := &run{
		VM: VM{Runtime: "vm", Client: toVM}, Code: Code{Text: endless, Timeout: time.Minute},
		endWait: 300 * time.Millisecond, out: newPrinter(toVM.Blobs, c.console(t)),
	}
	ended := make(chan error)
	go func() { ended <- r.run(ctx) }()
	within.Until(t, "it is printed", func() bool { return strings.Contains(c.out.String(), "here") })
	dark.Store(true)
	within.Until(t, "the connection has failed", failed.Load)
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "may still be running on the VM: interrupt it: ") {
		t.Errorf("%v %q", err, c.err.String())
	}
	interrupt(t, vm, r)
}

func TestARestartOfTheKernelIsReported(t *testing.T) {
	tier.Long(t)
	vm := newClient(t, startVM(t), nil)
	var c console
	ended := make(chan error)
	go func() {
		ended <- Run(t.Context(), VM{Runtime: "vm", Client: vm}, Code{Text: endless, Timeout: time.Minute}, c.console(t))
	}()
	within.Until(t, "it is printed", func() bool { return strings.Contains(c.out.String(), "here") })
	k, err := vm.Kernel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vm.RestartKernel(t.Context(), k.KernelID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.HasPrefix(err.Error(), "the run ended as kernel_restarted: ") || !strings.Contains(hint.Person(err), "Run it again in the new kernel") {
		t.Errorf("%v %q", err, c.err.String())
	}
}

func TestANewVMDuringARunIsReported(t *testing.T) {
	tier.Long(t)
	var target atomic.Pointer[string]
	first, second := startVM(t), startVM(t)
	target.Store(&first)
	env := map[string]string{
		"COLAB_URL":    front(t, func() string { return *target.Load() }, func() bool { return false }),
		"COLAB_SECRET": secret,
	}
	pool := runtimes.New(runtimes.Config{Getenv: func(name string) string { return env[name] }, Pairings: pairing.Open(t.TempDir())})
	defer pool.Close()
	resolved, err := pool.Resolve("")
	if err != nil {
		t.Fatal(err)
	}
	vm := VM{Runtime: resolved.Name, Client: resolved.Client, LastSeen: pool.LastSeen(runtimes.People)}
	var c console
	ended := make(chan error)
	r := &run{VM: vm, Code: Code{Text: endless, Timeout: time.Minute}, endWait: time.Second, out: newPrinter(vm.Client.Blobs, c.console(t))}
	go func() { ended <- r.run(t.Context()) }()
	within.Until(t, "it is printed", func() bool { return strings.Contains(c.out.String(), "here") })
	target.Store(&second)
	var refused *contract.Error
	if err := <-ended; !errors.As(err, &refused) || refused.Code != contract.CodeNewInstance || hint.Person(err) == "" {
		t.Errorf("%v %q", err, c.err.String())
	}
	interrupt(t, first, r)
	var next console
	if err := Run(t.Context(), vm, Code{Text: "print(3)", Timeout: time.Minute}, next.console(t)); err != nil {
		t.Fatal(err)
	}
	if next.out.String() != "3\n" || !strings.HasPrefix(next.err.String(), "colab-relay: this is a new kernel on a new VM: ") {
		t.Errorf("the next run says %q %q", next.out.String(), next.err.String())
	}
}

func TestInputMayEndWithoutALineBreak(t *testing.T) {
	p := newPrinter(nil, Console{Streams: terminal.Streams{In: strings.NewReader("bob\r\neve")}})
	for _, want := range []string{"bob", "eve"} {
		if got, err := p.readInput(t.Context()); got != want || err != nil {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	if _, err := p.readInput(t.Context()); !errors.Is(err, ErrNoInput) {
		t.Errorf("at the end of stdin: %v", err)
	}
}
