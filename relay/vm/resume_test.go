package vm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestAStartGoesOnWhenItsCallerStopsWaiting(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	entered, free := l.held("create", false)
	m := l.process()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := m.Up(ctx, vm.Request{Accelerators: accelerators}, l.say)
	if still, ok := errors.AsType[*vm.StartingError](err); !ok || still.Step != "asking Google for a VM with T4" {
		t.Fatalf("%v", err)
	}
	if all, err := l.process().List(t.Context()); err != nil || all.VMs[0].State != vm.StateStarting {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := m.Up(t.Context(), vm.Request{Accelerators: []string{"A100"}}, l.say); !errors.Is(err, vm.ErrOther) {
		t.Errorf("another request joined: %v", err)
	}
	free()
	if _, err := m.Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say); !errors.Is(err, errNoProgram) {
		t.Errorf("the result: %v", err)
	}
}

func TestAVMThatColabEndedIsReplaced(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	old := l.up(l.process(), vm.Request{Accelerators: accelerators})
	before := l.mustAnswer(vm.DefaultName)
	l.cloud.End(old.ID)
	process := func() *vm.Manager { m := l.process(); m.Hurry(0, 2*time.Minute); return m }
	if all, err := process().List(t.Context()); err != nil || all.VMs[0].State != vm.StateEnded {
		t.Errorf("%+v, %v", all, err)
	}
	got := l.up(process(), vm.Request{Accelerators: accelerators})
	if after := l.mustAnswer(vm.DefaultName); got.ID == old.ID || after.Secret.Equal(before.Secret) || after.VMID != got.ID {
		t.Errorf("%+v", got)
	}
	if len(l.list()) != 1 {
		t.Errorf("%v", l.list())
	}
	l.cloud.End(got.ID)
	if _, err := process().Down(t.Context(), got.ID, false); err != nil || len(l.list()) > 0 {
		t.Errorf("a VM that is gone was not removed: %v", err)
	}
	if _, err := l.cfg.Pairings.Get(vm.DefaultName); !errors.Is(err, pairing.ErrNotPaired) {
		t.Errorf("%v", err)
	}
}

// What runs on a VM is worth more than the connection to it.
func TestAnExecutorThatRunsAndDoesNotAnswerIsLeftAlone(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	l.up(l.process(), vm.Request{})
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method == "proxy" {
			return errors.New("HTTP 404")
		}
		return nil
	})
	m := l.process()
	m.Hurry(time.Minute, time.Second)
	if _, err := m.Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, vm.ErrUnreachable) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("%v", err)
	}
	l.cloud.Hook(nil)
	l.mustAnswer(vm.DefaultName)
}
