package vm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/auth"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// executor is the path of the real executor.
var executor string

func TestMain(m *testing.M) { vmtest.Main(m, &executor, func() {}) }

// laptop is a computer whose relay starts VMs.
type laptop struct {
	t       *testing.T
	cfg     vm.Config
	cloud   *vmtest.Cloud
	backend vm.Backend
	said    []string
}

func newLaptop(t *testing.T) *laptop {
	t.Helper()
	l := &laptop{t: t, cloud: vmtest.NewCloud(t)}
	l.backend = vmtest.ProxiedCloud{Cloud: l.cloud}
	l.cfg = vm.Config{
		Dir: t.TempDir(), Pairings: pairing.Open(t.TempDir()),
		Open:    func(string) (vm.Backend, error) { return l.backend, nil },
		Program: func(_ context.Context, arch string) (vm.Program, error) { return vm.FileProgram(executor, arch) },
	}
	must(t, vm.SaveLogin(l.cfg.Dir, vm.Login{Backend: "api", Accepted: time.Now()}))
	return l
}

// process returns the Manager of a relay process, which ends with the test.
func (l *laptop) process() *vm.Manager {
	m := vm.New(l.cfg)
	m.Hurry(2*time.Minute, 2*time.Minute)
	l.t.Cleanup(m.Close)
	return m
}

func (l *laptop) say(step string) { l.said = append(l.said, step) }

// up starts a VM with the real executor.
func (l *laptop) up(m *vm.Manager, r vm.Request) vm.VM {
	l.t.Helper()
	got, err := m.Up(within.Context(l.t), r, l.say)
	if err != nil {
		l.t.Fatalf("up: %v (%q)", err, l.said)
	}
	return got
}

// mustAnswer checks that the runtime of that name is a working executor.
func (l *laptop) mustAnswer(name string) pairing.Runtime {
	l.t.Helper()
	r, err := l.cfg.Pairings.Get(name)
	must(l.t, err)
	c, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret, Transport: l.process().Transport(r)})
	must(l.t, err)
	defer c.Close()
	if _, err := c.Kernel(within.Context(l.t)); err != nil {
		l.t.Fatalf("the executor of %q: %v", name, err)
	}
	return r
}

// list returns the VMs that another relay process lists, by id.
func (l *laptop) list() map[string]vm.VM {
	l.t.Helper()
	all, err := l.process().List(l.t.Context())
	must(l.t, err)
	byID := map[string]vm.VM{}
	for _, v := range all.VMs {
		byID[v.ID] = v
	}
	return byID
}

func TestAVMIsStartedPairedAndStopped(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	l := newLaptop(t)
	l.cfg.NgrokToken = "ngrok-token-of-the-user"
	var seen strings.Builder
	l.cloud.Hook(func(_ context.Context, c vmtest.Call) error {
		seen.WriteString(c.Code + "\n")
		return nil
	})
	got := l.up(l.process(), vm.Request{Accelerators: []string{"T4"}})
	l.cloud.Hook(nil)
	if got.Name != vm.DefaultName || got.Accelerator != "T4" || got.State != vm.StateReady || got.Via != vm.Proxy {
		t.Errorf("%+v", got)
	}
	r := l.mustAnswer(vm.DefaultName)
	if r.Provider != "colab-api" || r.VMID != got.ID {
		t.Errorf("%+v", r)
	}
	l.mustHideSecrets(seen.String(), got.ID)
	if again := l.up(l.process(), vm.Request{Accelerators: []string{"T4", "L4"}}); again.ID != got.ID {
		t.Errorf("the same request started another VM: %+v", again)
	}
	if listed := l.list()[got.ID]; listed.State != vm.StateReady || !listed.Ours {
		t.Errorf("%+v", listed)
	}
	if _, err := l.process().Down(t.Context(), vm.DefaultName, false); err != nil {
		t.Fatal(err)
	}
	if left := l.cloud.Running(); len(left) > 0 || len(l.list()) > 0 {
		t.Errorf("after down: %q run, %v are listed", left, l.list())
	}
	if _, err := l.cfg.Pairings.Get(vm.DefaultName); !errors.Is(err, pairing.ErrNotPaired) {
		t.Errorf("after down: %v", err)
	}
	if _, err := l.process().Down(t.Context(), vm.DefaultName, false); !errors.Is(err, vm.ErrUnknown) {
		t.Errorf("stopped twice: %v", err)
	}
}

// mustHideSecrets checks that no secret is in what was sent as code, in what the relay said, in
// the record, or in files on the VM.
func (l *laptop) mustHideSecrets(code, id string) {
	l.t.Helper()
	record, err := os.ReadFile(l.cfg.Dir + "/vms.json")
	must(l.t, err)
	for _, secret := range []string{l.mustAnswer(vm.DefaultName).Secret.Reveal(), l.cfg.NgrokToken} {
		for where, text := range map[string]string{"code": code, "the record": string(record), "the steps": strings.Join(l.said, "\n")} {
			if strings.Contains(text, secret) {
				l.t.Errorf("a secret is in %s", where)
			}
		}
		if holders := filesWith(l.t, l.cloud.Dir(id), secret); len(holders) > 0 {
			l.t.Errorf("a secret is in files on the VM: %q", holders)
		}
	}
}

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
		"nothing named is a CPU":           {"", []error{nil}, []string{vm.CPU}, errNoProgram, true, ""},
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
			must(t, err)
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

// filesWith returns the files below a folder that contain a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	must(t, err)
	return found
}

func TestProcessesThatStartTheSameNameShareOneVM(t *testing.T) {
	t.Parallel()
	l := withoutProgram(t)
	var all sync.WaitGroup
	for range 3 {
		m := l.process()
		all.Go(func() { _, _ = m.Up(within.Context(t), vm.Request{}, func(string) {}) })
	}
	all.Wait()
	if len(l.cloud.Running()) != 1 || len(l.list()) != 1 {
		t.Errorf("%q run, %v", l.cloud.Running(), l.list())
	}
}

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
	must(t, l.cfg.Pairings.Remove(vm.DefaultName))
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
	must(t, os.Remove(l.cfg.Dir+"/login.json"))
	if _, err := l.process().Up(t.Context(), vm.Request{}, l.say); !errors.Is(err, vm.ErrNotEnabled) || len(l.cloud.Running()) > 0 {
		t.Errorf("%v", err)
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
