package vm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/within"
)

// errNoProgram ends a start once the VM exists.
var errNoProgram = errors.New("there is no program in this test")

var noProgram = vm.Program{SHA256: "0", Content: func(context.Context) ([]byte, error) { return nil, errNoProgram }}

// withoutProgram returns a laptop whose starts end once the VM exists.
func withoutProgram(t *testing.T) *laptop {
	l := newLaptop(t)
	l.cfg.Program = func(context.Context, string) (vm.Program, error) { return noProgram, nil }
	return l
}

// asked records the accelerators that Google was asked for.
func (l *laptop) asked() *[]string {
	var all []string
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method == "create" && !c.Done {
			all = append(all, c.Code)
		}
		return nil
	})
	return &all
}

func TestAcceleratorsAreTriedInTurn(t *testing.T) {
	t.Parallel()
	other := errors.New("HTTP 500")
	for name, c := range map[string]struct {
		accelerators string
		refusal      []error // of each Create in turn
		asked        []string
		err          error
		kept         bool // a record stays
		says         string
	}{
		"the first is free":                {"T4,L4", []error{nil}, []string{"T4"}, errNoProgram, true, ""},
		"none free: the next":              {"T4,L4,A100", []error{vm.ErrNoneFree, vm.ErrNotEligible, nil}, []string{"T4", "L4", "A100"}, errNoProgram, true, ""},
		"none is free":                     {"T4,L4", []error{vm.ErrNotEligible, vm.ErrNoneFree}, []string{"T4", "L4"}, vm.ErrNoneFree, false, "T4: this account may not start"},
		"nothing named is a CPU":           {"", []error{nil}, []string{""}, errNoProgram, true, ""},
		"quota ends it":                    {"T4,L4", []error{vm.ErrQuota}, []string{"T4"}, vm.ErrQuota, false, "these VMs run: other (L4)"},
		"an unclear error leaves a record": {"T4,L4", []error{other}, []string{"T4"}, other, true, "ask for a VM with T4: HTTP 500"},
	} {
		t.Run(name, func(t *testing.T) {
			l := withoutProgram(t)
			l.cloud.Add(vm.Machine{ID: "other", Spec: vm.Spec{Accelerator: "L4"}, Ready: true})
			for _, r := range c.refusal {
				l.cloud.Refuse(r)
			}
			asked := l.asked()
			accelerators, err := vm.ParseAccelerators(c.accelerators)
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.process().Up(within.Context(t), vm.Request{Accelerators: accelerators}, l.say)
			if !errors.Is(err, c.err) && !strings.Contains(fmt.Sprint(err), c.err.Error()) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%v, want %v, %q", err, c.err, c.says)
			}
			if !slices.Equal(*asked, c.asked) {
				t.Errorf("asked for %q", *asked)
			}
			if n := len(l.list()); c.kept != (n == 2) || !c.kept && n != 1 {
				t.Errorf("%v", l.list())
			}
		})
	}
}

// A relay that lost Google's answer asks again with the same id.
func TestALostAnswerStartsNoSecondVM(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	lost := errors.New("connection reset")
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		if c.Method == "create" && c.Done {
			return lost
		}
		return nil
	})
	if _, err := l.process().Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	id := l.cloud.Running()[0]
	if v := l.list()[id]; v.State != vm.StateInterrupted || !strings.Contains(v.Note, "connection reset") {
		t.Errorf("%+v", v)
	}
	l.cloud.Hook(nil)
	if _, err := l.process().Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, errNoProgram) {
		t.Errorf("%v", err)
	}
	if left := l.cloud.Running(); len(left) != 1 {
		t.Errorf("%q run", left)
	}
}
