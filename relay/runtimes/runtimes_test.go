package runtimes

import (
	"net/http"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/fakevm"
)

func TestANewPairingIsUsedImmediately(t *testing.T) {
	store := pairing.Open(t.TempDir())
	p := New(Config{Getenv: func(string) string { return "" }, Pairings: store})
	defer p.Close()
	if _, err := p.Resolve(""); err == nil {
		t.Fatal("resolved without a pairing")
	}
	for i, vm := range []*fakevm.VM{fakevm.Start(t), fakevm.Start(t)} {
		if _, err := store.Put(pairing.Runtime{Name: pairing.DefaultName, URL: vm.URL, Secret: vm.Secret}); err != nil {
			t.Fatal(err)
		}
		got, err := p.Resolve("")
		if err != nil || got.URL != vm.URL || got.Name != "default" {
			t.Errorf("%+v %v", got, err)
		}
		if _, err := got.Client.Kernel(t.Context()); err != nil {
			t.Errorf("the client of pairing %d: %v", i, err)
		}
		if again, _ := p.Resolve("default"); again.Client != got.Client {
			t.Error("each call gets another client")
		}
	}
}

func TestARuntimeOfAProviderUsesItsTransport(t *testing.T) {
	store, vm := pairing.Open(t.TempDir()), fakevm.Start(t)
	plain := pairing.Runtime{Name: "a", URL: vm.URL, Secret: vm.Secret}
	proxied := plain
	proxied.Provider, proxied.VMID = "p", "v"
	var asked []pairing.Runtime
	var used int
	p := New(Config{Getenv: func(string) string { return "" }, Pairings: store, Transport: func(r pairing.Runtime) http.RoundTripper {
		asked = append(asked, r)
		return roundTripper(func(r *http.Request) (*http.Response, error) { used++; return http.DefaultTransport.RoundTrip(r) })
	}})
	defer p.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for i, r := range []pairing.Runtime{plain, proxied, plain} {
		if _, err := store.Put(r); err != nil {
			t.Fatal(err)
		}
		got, err := p.Resolve("a")
		if err != nil {
			t.Fatal(err)
		}
		before := used
		if _, err := got.Client.Kernel(t.Context()); err != nil {
			t.Fatalf("runtime %d: %v", i, err)
		}
		if (used > before) != (r.Provider != "") {
			t.Errorf("runtime %d used the provider's transport %d times", i, used-before)
		}
	}
	if len(asked) != 1 || asked[0].VMID != "v" {
		t.Errorf("asked for the transports of %+v", asked)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestEachUserIsWarnedOnceAndARemovedRuntimeIsForgotten(t *testing.T) {
	store := pairing.Open(t.TempDir())
	p := New(Config{Getenv: func(string) string { return "" }, Pairings: store})
	defer p.Close()
	vm := fakevm.Start(t)
	pair := func() {
		t.Helper()
		if _, err := store.Put(pairing.Runtime{Name: "a", URL: vm.URL, Secret: vm.Secret}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Resolve("a"); err != nil {
			t.Fatal(err)
		}
	}
	pair()
	first, second := pairing.LastSeen{KernelID: "1"}, pairing.LastSeen{KernelID: "2"}
	p.LastSeen(Agents).Save("a", first)
	if got := p.LastSeen(People).Load("a"); got != first {
		t.Errorf("a user who saw nothing compares with %+v", got)
	}
	p.LastSeen(People).Save("a", second)
	if got := p.LastSeen(Agents).Load("a"); got != first {
		t.Errorf("another user's kernel hides a new one: %+v", got)
	}
	if err := store.Remove("a"); err != nil {
		t.Fatal(err)
	}
	pair()
	if got := p.LastSeen(Agents).Load("a"); got != (pairing.LastSeen{}) {
		t.Errorf("a removed runtime is remembered: %+v", got)
	}
}
