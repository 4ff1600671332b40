package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
)

// More calls than may be in progress hang at runtimes that begin an answer and are silent. Another
// runtime is answered at once, and the relay ends when its stdin is closed.
func TestRuntimesThatHangKeepNeitherOthersNorTheEndWaiting(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	store := pairing.Open(filepath.Join(dir, "config", "colab-relay"))
	vms := map[string]*fakevm.VM{}
	for _, name := range []string{"none", "switch", "hint-silence", "page-silence"} {
		vm := hostilevm.Start(t, name)
		vms[name] = vm
		_, err := store.Put(pairing.Runtime{Name: name, URL: vm.URL, Secret: vm.Secret})
		must(t, err)
	}
	h, err := harness.StartHost(within(t), harness.HostConfig{
		Binary: binaries.Relay, Dir: dir, Env: []string{"XDG_CONFIG_HOME=" + dir + "/config", "RELAY_HOLD=200s"},
	})
	must(t, err)
	t.Cleanup(func() { h.Close() })
	ctx := within(t)
	var all sync.WaitGroup
	for i := range 300 {
		name := []string{"switch", "hint-silence", "page-silence"}[i%3]
		all.Go(func() { _, _ = h.Call(ctx, "check_colab_connection", map[string]any{"runtime": name}) })
		all.Go(func() { _, _ = h.Call(ctx, "run_code_quick", map[string]any{"runtime": name, "code": "1"}) })
	}
	must(t, harness.Poll(ctx, func() (bool, error) { // until each has many requests that hang
		for _, name := range []string{"hint-silence", "page-silence"} {
			if vms[name].Count("GET "+contract.PathHealth)+vms[name].Count("GET "+contract.PathKernel) < 40 {
				return false, nil
			}
		}
		return true, nil
	}))
	for range 5 {
		began := time.Now()
		want(t, call(t, h, "run_code_quick", map[string]any{"code": "1", "runtime": "none"}), map[string]any{"success": true})
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the honest runtime's answer took %s", took)
		}
	}
	began := time.Now()
	h.Close()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the relay ended %s after its stdin", took)
	}
	all.Wait()
}

// A command that only asks ends by itself where each connection breaks after the first answer, and
// says that the VM does not answer.
func TestACommandEndsWhereEachConnectionBreaks(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	vm := hostilevm.Start(t, "breaks")
	for _, args := range [][]string{{"ls"}, {"vars"}, {"probe"}, {"restart", "--yes"}, {"interrupt"}, {"logs", "x"}, {"ps"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			cmd := exec.CommandContext(within(t), binaries.Relay, args...)
			cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home+"/config", "COLAB_URL="+vm.URL, "COLAB_SECRET="+vm.Secret.Reveal())
			var errs bytes.Buffer
			cmd.Stderr = &errs
			err := cmd.Run()
			if code := cmd.ProcessState.ExitCode(); args[0] != "ps" && (err == nil || code != 69) || code < 0 {
				t.Errorf("exit code %d, %v: %s", code, err, &errs)
			}
		})
	}
}
