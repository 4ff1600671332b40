package vm_test

import (
	"context"
	"slices"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestTheKeeperKeepsPairedVMsAlive(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	m := l.process()
	got := l.up(m, vm.Request{})
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Keeper(func(_ context.Context, runtime string) (vm.Work, error) {
			asked <- runtime
			return vm.Working, nil
		}, true).Run(ctx)
	}()
	if runtime := within.Receive(t, "a question", asked); runtime != vm.DefaultName {
		t.Errorf("asked %q", runtime)
	}
	within.Until(t, "a keep-alive", func() bool { return slices.Contains(l.cloud.Touched(), got.ID) })
	cancel()
	<-ended
}
