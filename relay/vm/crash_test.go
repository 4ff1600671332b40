package vm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

var errKilled = errors.New("the relay was killed")

// killAt starts a VM with a relay that is killed at the nth point: before or after the effect
// of a call. What was on disk then is on the laptop that it returns.
func killAt(t *testing.T, n int64) *laptop {
	t.Helper()
	l := newLaptop(t)
	l.cloud.Refuse(vm.ErrNoneFree)
	after := *l
	after.cfg.Dir, after.cfg.Pairings = t.TempDir(), pairing.Open(t.TempDir())
	var points atomic.Int64
	l.cloud.Hook(func(context.Context, vmtest.Call) error {
		switch p := points.Add(1); {
		case p < n:
			return nil
		case p == n:
			copyFolder(t, l.cfg.Dir, after.cfg.Dir)
			copyFolder(t, dirOf(l.cfg.Pairings), dirOf(after.cfg.Pairings))
		}
		return errKilled
	})
	m := vm.New(l.cfg)
	if _, err := m.Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say); err == nil {
		t.Error("the start ended before the relay was killed")
	}
	m.Close()
	l.cloud.Hook(nil)
	return &after
}

var accelerators = []string{"T4", "L4"}

func dirOf(s *pairing.Store) string { return s.Path()[:len(s.Path())-len("/runtimes.json")] }

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Error(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Error(err)
	}
}

func TestNothingRunsUnlistedAfterAKillAtAnyPoint(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for _, n := range []int64{1, 14} { // of at least 17
		t.Run(fmt.Sprintf("point %d", n), func(t *testing.T) {
			l := killAt(t, n)
			listed := l.list()
			for _, id := range l.cloud.Running() {
				if v := listed[id]; !v.Ours || v.Name != vm.DefaultName {
					t.Errorf("%s runs and is listed as %+v", id, v)
				}
			}
			if n%2 == 0 {
				l.continues()
			} else {
				l.stops()
			}
		})
	}
}

// continues checks that another relay process completes the start with the VM that is there.
func (l *laptop) continues() {
	l.t.Helper()
	before := l.cloud.Running()
	got := l.up(l.process(), vm.Request{Accelerators: accelerators})
	if after := l.cloud.Running(); len(after) != 1 || after[0] != got.ID || len(before) > 0 && before[0] != got.ID {
		l.t.Errorf("before %q, after %q, returned %s", before, after, got.ID)
	}
	l.mustAnswer(vm.DefaultName)
}

// stops checks that another relay process can stop what is there.
func (l *laptop) stops() {
	l.t.Helper()
	if len(l.list()) == 0 {
		return // killed before anything was asked for
	}
	_, err := l.process().Down(l.t.Context(), vm.DefaultName, false)
	if errors.Is(err, vm.ErrNotConfirmed) { // it may be created yet, so it must stay on record
		if len(l.list()) != 1 {
			l.t.Errorf("%v, but it is not listed", err)
		}
		m := l.process()
		m.Hurry(0, time.Second)
		_, err = m.Down(l.t.Context(), vm.DefaultName, false)
	}
	if err != nil || len(l.cloud.Running()) > 0 || len(l.list()) > 0 {
		l.t.Errorf("%v; %q run, %v are listed", err, l.cloud.Running(), l.list())
	}
}
