package vm_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// loseAnswer makes the service lose its answer to create, before or after the VM exists.
func (l *laptop) loseAnswer(exists bool) {
	l.t.Helper()
	lost := errors.New("connection reset")
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method == "create" && c.Done == exists {
			return lost
		}
		return nil
	})
	if _, err := l.process().Up(within.Context(l.t), vm.Request{Accelerators: accelerators}, l.say); !errors.Is(err, lost) || !strings.Contains(err.Error(), "may run, and use compute units") {
		l.t.Fatal(err)
	}
}

// Google may say that too many VMs run, because of the very one that is asked for again.
func TestARefusalDoesNotMakeTheRelayForgetAVM(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, reason := range map[string]error{"too many": vm.ErrTooMany, "none free": vm.ErrNoneFree, "not eligible": vm.ErrNotEligible} {
		t.Run(name, func(t *testing.T) {
			l := withoutProgram(t)
			l.loseAnswer(true)
			l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
				if c.Method == "create" {
					return reason
				}
				return nil
			})
			if _, err := l.process().Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say); !errors.Is(err, errNoProgram) {
				t.Errorf("%v", err)
			}
			if v := l.list()[l.cloud.Running()[0]]; !v.Ours || v.State != vm.StateInterrupted {
				t.Errorf("%+v", v)
			}
		})
	}
}

// A request whose answer was lost may still create its VM, for a while.
func TestARefusalSoonAfterALostAnswerKeepsTheRecord(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	l.loseAnswer(false)
	asked := l.asked()
	refused := func(m *vm.Manager) {
		t.Helper()
		for range accelerators {
			l.cloud.Refuse(vm.ErrNoneFree)
		}
		if _, err := m.Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say); !errors.Is(err, vm.ErrNoneFree) {
			t.Errorf("%v", err)
		}
	}
	refused(l.process())
	if all := l.list(); len(all) != 1 || len(*asked) != 2 {
		t.Fatalf("%v, asked for %q", all, *asked)
	}
	later := l.process()
	later.Hurry(0, time.Second)
	refused(later)
	if all := l.list(); len(all) != 0 || len(*asked) != 4 {
		t.Errorf("%v, asked for %q", all, *asked)
	}
}

func TestAnothersVMWithTheIDOfOurNameIsListed(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
	l.cloud.Add(vm.Machine{ID: vm.DefaultName, Ready: true})
	if all := l.list(); len(all) != 2 || all[vm.DefaultName].State != vm.StateForeign {
		t.Errorf("%+v", all)
	}
}

// A clock that was a year ahead must not make a VM seem just asked for until then.
func TestATimeInTheFutureIsCorrected(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	ahead := vm.Record{ID: vm.NewID(), Name: "vm", Backend: "api", Accelerators: accelerators, Accelerator: "T4", Step: vm.Asked, Asked: time.Now().AddDate(1, 0, 0)}
	text, err := vm.EncodeRecords([]vm.Record{ahead})
	if err != nil {
		t.Fatal(err)
	}
	l.write(text)
	m := l.process()
	m.Hurry(time.Nanosecond, time.Second)
	if _, err := m.Down(within.Context(t), "vm", false); err != nil || len(l.list()) > 0 {
		t.Errorf("%v, %v", err, l.list())
	}
}

func TestAFullDiskDoesNotKeepAVMRunning(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
	m := l.process()
	m.FillDisk()
	if _, err := m.Down(within.Context(t), "vm", false); err == nil || !strings.Contains(err.Error(), "the VM is gone") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v", err)
	}
	if left := l.cloud.Running(); len(left) > 0 || len(l.list()) != 1 {
		t.Errorf("%q run, %v are listed", left, l.list())
	}
	if _, err := m.Up(within.Context(t), vm.Request{Name: "other"}, l.say); err == nil || len(l.cloud.Running()) > 0 {
		t.Errorf("a VM that could not be recorded was asked for: %v", err)
	}
}

// Nobody may learn the result of a start after its VM was stopped, or when it is old.
func TestAnOldResultOfAStartIsNotReported(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, outdate := range map[string]func(*testing.T, *vm.Manager){
		"the VM was stopped": func(t *testing.T, m *vm.Manager) {
			if v, err := m.Down(within.Context(t), "vm", false); err != nil || v.State != vm.StateStopped {
				t.Errorf("%+v, %v", v, err)
			}
		},
		"time has passed": func(_ *testing.T, m *vm.Manager) { m.ForgetResults() },
	} {
		t.Run(name, func(t *testing.T) {
			l := withoutProgram(t)
			entered, free := l.held("create", false)
			m := l.process()
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-entered; cancel() }()
			if _, err := m.Up(ctx, vm.Request{}, l.say); err == nil {
				t.Fatal("the start ended")
			}
			free()
			l.untilEnded()
			outdate(t, m)
			asked := 0
			l.cloud.Hook(func(context.Context, vmtest.Call) error { asked++; return nil })
			if _, err := m.Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, errNoProgram) || asked == 0 {
				t.Errorf("%v, %d calls of the service", err, asked)
			}
		})
	}
}

// untilEnded waits until no process works on a VM.
func (l *laptop) untilEnded() {
	l.t.Helper()
	ctx := within.Context(l.t)
	for ctx.Err() == nil {
		working := false
		for _, v := range l.list() {
			working = working || v.State == vm.StateStarting
		}
		if !working {
			return
		}
	}
	l.t.Fatal("the start did not end")
}

// Of two that stop a VM at once, the second one reports that it is gone, too.
func TestTwoProcessesStopAVMAtOnce(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	l.loseAnswer(true)
	entered, free := l.held("delete", false)
	results := make(chan error, 2)
	stop := func(m *vm.Manager) {
		_, err := m.Down(within.Context(t), "vm", false)
		results <- err
	}
	go stop(l.process())
	<-entered
	marked := make(chan struct{})
	l.cfg.Open = func(string) (vm.Backend, error) { close(marked); return l.backend, nil }
	go stop(l.process())
	<-marked
	free()
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestARecordSaysWhetherGoogleWasAsked(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method != "create" || c.Done {
			return nil
		}
		var f struct{ VMs []vm.Record }
		text, err := os.ReadFile(l.cfg.Dir + "/vms.json")
		if err := errors.Join(err, json.Unmarshal(text, &f)); err != nil || len(f.VMs) != 1 || f.VMs[0].ID != c.ID || f.VMs[0].Asked.IsZero() {
			t.Errorf("when Google is asked, the record is %s, %v", text, err)
		}
		return nil
	})
	_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
}
