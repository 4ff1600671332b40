package colabcli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// onLoopback is a Backend whose VMs are this computer, so that no tunnel is needed.
type onLoopback struct{ *Backend }

func (onLoopback) Proxy(_ context.Context, _ string, port int) (string, http.RoundTripper, error) {
	return fmt.Sprintf("http://127.0.0.1:%d", port), http.DefaultTransport, nil
}

// The whole way with the stand-in and a real executor: start, run code, find the VM again
// after the relay ended, stop.
func TestAnExecutorIsStartedByGooglesProgram(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b, program := open(t)
	executor, err := harness.BuildExecutor(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg := vm.Config{
		Dir: t.TempDir(), Pairings: pairing.Open(t.TempDir()), NgrokToken: "the-ngrok-token",
		Open:    func(string) (vm.Backend, error) { return onLoopback{b}, nil },
		Program: func(_ context.Context, arch string) (vm.Program, error) { return vm.FileProgram(executor, arch) },
	}
	if err := vm.SaveLogin(cfg.Dir, vm.Login{Backend: "cli", Accepted: time.Now()}); err != nil {
		t.Fatal(err)
	}
	m := vm.New(cfg)
	defer m.Close()
	program.Fault("refuse", 503)
	got, err := m.Up(within.Context(t), vm.Request{Accelerators: []string{"H100", "T4"}}, func(step string) { t.Log(step) })
	if err != nil || got.Accelerator != "T4" || got.State != vm.StateReady {
		t.Fatalf("%+v, %v", got, err)
	}
	r, err := cfg.Pairings.Get(got.Name)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, r)
	again := vm.New(cfg)
	defer again.Close()
	if same, err := again.Up(within.Context(t), vm.Request{Accelerators: []string{"T4"}}, func(string) {}); err != nil || same.ID != got.ID {
		t.Errorf("the next relay: %+v, %v", same, err)
	}
	for _, secret := range []string{r.Secret.Reveal(), cfg.NgrokToken} {
		if files := program.Mentions(secret); len(files) != 0 {
			t.Errorf("a secret is in %q", files)
		}
	}
	if _, err := again.Down(within.Context(t), got.ID, false); err != nil {
		t.Error(err)
	}
	if left := program.Endpoints(); len(left) != 0 {
		t.Errorf("VMs run on: %q", left)
	}
}

func mustRun(t *testing.T, r pairing.Runtime) {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	e, err := c.Submit(within.Context(t), contract.Submit{RequestID: "r1", Code: "print(6*7)", WaitSeconds: 30})
	if err != nil || e.Status != contract.StatusSucceeded || !strings.Contains(fmt.Sprint(e.Events), "42") {
		t.Errorf("%+v, %v", e, err)
	}
}
