package vm_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/shared/auth"
	"colabrelay/shared/tier"
)

// touched counts the keep-alives of a backend.
type touched struct {
	vm.Backend
	ids chan string
}

func (b touched) Touch(ctx context.Context, id string) error {
	b.ids <- id
	return b.Backend.Touch(ctx, id)
}

func TestTheKeeperKeepsPairedVMsAlive(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	m := l.process()
	got := l.up(m, vm.Request{})
	backend := touched{l.backend, make(chan string, 10)}
	l.backend = backend
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const relays = 5 // which an MCP host may have started for its windows
	asked := make(chan string, relays)
	var ended sync.WaitGroup
	for range relays {
		other := l.process()
		ended.Go(func() {
			other.Keeper(func(_ context.Context, runtime string) (vm.Work, error) {
				asked <- runtime
				return vm.Working, nil
			}, true).Run(ctx)
		})
	}
	select {
	case id := <-backend.ids:
		if id != got.ID {
			t.Errorf("%q was kept alive, not %q", id, got.ID)
		}
	case <-ctx.Done():
		t.Error("not kept alive")
	}
	for range relays {
		if runtime := <-asked; runtime != vm.DefaultName {
			t.Errorf("asked %q", runtime)
		}
	}
	// One more keep-alive, by a relay that comes last, is not sent: the first was seconds ago.
	if err := l.process().Touch(ctx, vm.Kept{ID: got.ID, Backend: l.backend.Name()}); err != nil || len(backend.ids) != 0 {
		t.Errorf("%d keep-alives too many, %v", len(backend.ids), err)
	}
	cancel()
	ended.Wait()
	if n := len(backend.ids); n != 0 {
		t.Errorf("%d keep-alives too many", n)
	}
}

func TestOnlyVMsThatAreStillPairedAreKeptAlive(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	m := l.process()
	got := l.up(m, vm.Request{})
	paired, err := l.cfg.Pairings.Get(vm.DefaultName)
	if err != nil {
		t.Fatal(err)
	}
	mustKeep := func(want ...string) {
		t.Helper()
		all, err := m.Kept()
		var ids []string
		for _, v := range all {
			ids = append(ids, v.ID)
			if v.Runtime != vm.DefaultName || time.Since(v.Since) > time.Hour {
				t.Errorf("%+v", v)
			}
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("kept alive: %v, %v", all, err)
		}
	}
	mustKeep(got.ID)
	if err := l.cfg.Pairings.Remove(vm.DefaultName); err != nil {
		t.Fatal(err)
	}
	mustKeep()
	replaced := pairing.Runtime{Name: paired.Name, URL: paired.URL, Secret: auth.GenerateSecret()}
	for _, r := range []pairing.Runtime{replaced, paired} {
		if _, err := l.cfg.Pairings.Put(r); err != nil {
			t.Fatal(err)
		}
		if r.Secret.Equal(paired.Secret) {
			mustKeep(got.ID)
		} else {
			mustKeep()
		}
	}
}
