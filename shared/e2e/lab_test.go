package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// lab is a VM and a laptop. Each can be killed and restarted with the same folders and the same
// address.
type lab struct {
	t        *testing.T
	vm       harness.ExecutorConfig
	laptop   harness.HostConfig
	executor *harness.Executor
	host     *harness.Host
}

func newLab(t *testing.T, hold string, env ...string) *lab {
	t.Helper()
	return labOf(t, startExecutor(t, harness.ExecutorConfig{}), hold, env)
}

// borrowLab is newLab with an executor that other tests used before.
func borrowLab(t *testing.T, hold string, env ...string) *lab {
	t.Helper()
	return labOf(t, borrowExecutor(t, stacks.Old(t)), hold, env)
}

func labOf(t *testing.T, e *harness.Executor, hold string, env []string) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, vm: e.Config, executor: e}
	l.laptop = harness.HostConfig{Dir: dir, Env: append([]string{"RELAY_HOLD=" + hold, "LOCAL_SAVE_DIR=" + dir + "/saved", "CHECKPOINT_DIR=" + dir + "/checkpoints"}, env...)}
	l.startHost()
	return l
}

func (l *lab) startHost() {
	l.t.Helper()
	l.host = startHost(l.t, "http://"+l.vm.Listen, l.laptop)
}

// newVM ends the VM and starts an empty one at the same address.
func (l *lab) newVM() {
	l.t.Helper()
	l.executor.Kill()
	l.vm.Dir = l.t.TempDir()
	l.executor = startExecutor(l.t, l.vm)
}

// killKernel kills the kernel's process as an out-of-memory kill would.
func (l *lab) killKernel() {
	var record struct{ PID int }
	data, err := os.ReadFile(filepath.Join(l.vm.Dir, ".colab-relay", "kernel.json"))
	if err == nil && json.Unmarshal(data, &record) == nil && record.PID > 1 {
		_ = syscall.Kill(record.PID, syscall.SIGKILL)
	}
}
