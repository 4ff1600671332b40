package vm_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/auth"
	"colabrelay/shared/within"
)

// held makes the service wait in calls of a method, before or after their effect, until free
// is called or the caller gives up. entered is closed when the first one waits.
func (l *laptop) held(method string, done bool) (entered <-chan struct{}, free func()) {
	in, out := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.cloud.Hook(func(ctx context.Context, c vmtest.Call) error {
		if c.Method != method || c.Done != done {
			return nil
		}
		once.Do(func() { close(in) })
		select {
		case <-out:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return in, func() { close(out) }
}

// A start in any step ends when another process stops the VM, and the VM is gone.
func TestAStartIsStoppedByAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		done   bool
	}{
		"before it is created":  {"create", false},
		"while it is created":   {"create", true},
		"while it is looked at": {"list", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := withoutProgram(t)
			entered, _ := l.held(c.method, c.done)
			result := make(chan error, 1)
			m := l.process()
			go func() {
				_, err := m.Up(within.Context(t), vm.Request{}, func(string) {})
				result <- err
			}()
			<-entered
			l.cloud.Hook(nil)
			_, err := l.process().Down(within.Context(t), vm.DefaultName, false)
			if err := <-result; !errors.Is(err, vm.ErrStopped) {
				t.Errorf("the start ended with %v", err)
			}
			if errors.Is(err, vm.ErrNotConfirmed) && c.method == "create" && !c.done {
				if len(l.list()) != 1 {
					t.Error("a VM that may be created yet is not listed")
				}
				err = nil
			}
			if err != nil || len(l.cloud.Running()) > 0 {
				t.Errorf("%v; %q run", err, l.cloud.Running())
			}
		})
	}
}

func TestAVMIsNotForgottenBeforeItWasSeenToBeGone(t *testing.T) {
	t.Parallel()
	for name, break_ := range map[string]func(l *laptop){
		"Google does not answer": func(l *laptop) { l.cloud.Break() },
		"the list after it fails": func(l *laptop) {
			deleted := false
			l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
				deleted = deleted || c.Method == "delete"
				if deleted && c.Method == "list" {
					return errors.New("HTTP 500")
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := withoutProgram(t)
			_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
			break_(l)
			if _, err := l.process().Down(within.Context(t), vm.DefaultName, false); err == nil {
				t.Error("stopped without proof")
			}
			l.cloud.Hook(nil)
			l.cloud.SetBroken(false)
			if all := l.list(); len(all) != 1 {
				t.Errorf("%v", all)
			}
			if _, err := l.process().Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, vm.ErrStopped) {
				t.Errorf("a VM that is being stopped was started: %v", err)
			}
			if _, err := l.process().Down(within.Context(t), vm.DefaultName, false); err != nil || len(l.list()) > 0 {
				t.Errorf("%v, %v", err, l.list())
			}
		})
	}
}

func TestOthersVMsAreStoppedOnlyByForce(t *testing.T) {
	t.Parallel()
	l := newLaptop(t)
	l.cloud.Add(vm.Machine{ID: "somebody's", Ready: true})
	if _, err := l.process().Down(t.Context(), "somebody's", false); !errors.Is(err, vm.ErrNotOurs) || len(l.cloud.Running()) != 1 {
		t.Fatalf("%v", err)
	}
	if v := l.list()["somebody's"]; v.Ours || v.State != vm.StateForeign {
		t.Errorf("%+v", v)
	}
	if _, err := l.process().Down(t.Context(), "somebody's", true); err != nil || len(l.cloud.Running()) != 0 {
		t.Errorf("%v", err)
	}
}

func TestAnotherRuntimeOfTheNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	foreign := pairing.Runtime{Name: vm.DefaultName, URL: "https://other.example", Secret: auth.GenerateSecret()}
	put := func() {
		t.Helper()
		if _, err := l.cfg.Pairings.Put(foreign); err != nil {
			t.Fatal(err)
		}
	}
	put()
	if _, err := l.process().Up(within.Context(t), vm.Request{}, l.say); !errors.Is(err, vm.ErrNameTaken) || len(l.cloud.Running())+len(l.list()) > 0 {
		t.Errorf("%v", err)
	}
	if err := l.cfg.Pairings.Remove(vm.DefaultName); err != nil {
		t.Fatal(err)
	}
	_, _ = l.process().Up(within.Context(t), vm.Request{}, l.say)
	put()
	if _, err := l.process().Down(t.Context(), vm.DefaultName, false); err != nil {
		t.Fatal(err)
	}
	if got, err := l.cfg.Pairings.Get(vm.DefaultName); err != nil || !got.Secret.Equal(foreign.Secret) {
		t.Errorf("the other runtime was removed: %v", err)
	}
}

func TestNothingStartsBeforeALogin(t *testing.T) {
	t.Parallel()
	l := newLaptop(t)
	if err := os.Remove(l.cfg.Dir + "/login.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.process().Up(t.Context(), vm.Request{}, l.say); !errors.Is(err, vm.ErrNotEnabled) || len(l.cloud.Running()) > 0 {
		t.Errorf("%v", err)
	}
}
