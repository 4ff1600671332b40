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
