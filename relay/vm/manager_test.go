package vm_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/vmtest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// executor is the path of the real executor.
var executor string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "vm-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if executor, err = harness.BuildExecutor(context.Background(), dir); err != nil {
			panic(err)
		}
		code := m.Run()
		if err := goleak.Find(); code == 0 && err != nil {
			println(err.Error())
			return 1
		}
		return code
	}())
}

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
	if err := vm.SaveLogin(l.cfg.Dir, vm.Login{Backend: "api", Accepted: time.Now()}); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret, Transport: l.process().Transport(r)})
	if err != nil {
		l.t.Fatal(err)
	}
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
	if err != nil {
		l.t.Fatal(err)
	}
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
	if err != nil {
		l.t.Fatal(err)
	}
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
