package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// lab is a VM, a network that can be cut, and a laptop. Each can be killed and restarted
// with the same folders and the same address.
type lab struct {
	t        *testing.T
	vm       harness.ExecutorConfig
	laptop   harness.HostConfig
	executor *harness.Executor
	network  *toxiproxy.Proxy
	host     *harness.Host
}

func newLab(t *testing.T, hold string, env ...string) *lab {
	t.Helper()
	l := &lab{t: t, vm: harness.ExecutorConfig{Python: stacks.Old(t).Python, Dir: t.TempDir()}}
	l.startExecutor()
	l.connect(hold, env)
	return l
}

// borrowLab is newLab with an executor that other tests used before.
func borrowLab(t *testing.T, hold string, env ...string) *lab {
	t.Helper()
	e := borrowExecutor(t, stacks.Old(t))
	l := &lab{t: t, vm: e.Config, executor: e}
	l.connect(hold, env)
	return l
}

// connect adds the network and the laptop.
func (l *lab) connect(hold string, env []string) {
	l.t.Helper()
	dir := l.t.TempDir()
	l.laptop = harness.HostConfig{Dir: dir, Env: append([]string{"RELAY_HOLD=" + hold, "LOCAL_SAVE_DIR=" + dir + "/saved", "CHECKPOINT_DIR=" + dir + "/checkpoints"}, env...)}
	l.vm.Listen = strings.TrimPrefix(l.executor.Ready.LocalURL, "http://")
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l.network = toxiproxy.NewProxy(api, "tunnel", "127.0.0.1:0", l.vm.Listen)
	l.plug()
	l.t.Cleanup(l.network.Stop)
	l.startHost()
}

func (l *lab) startExecutor() {
	l.t.Helper()
	l.executor = startExecutor(l.t, l.vm)
}

func (l *lab) startHost() {
	l.t.Helper()
	l.host = startHost(l.t, "http://"+l.network.Listen, l.laptop)
}

// plug connects the network. It retries while the system still holds the port.
func (l *lab) plug() {
	l.t.Helper()
	err := harness.Poll(within.Context(l.t), func() (bool, error) { return l.network.Start() == nil, nil })
	if err != nil {
		l.t.Fatal(err)
	}
}

// newVM ends the VM and starts an empty one at the same address.
func (l *lab) newVM() {
	l.t.Helper()
	l.executor.Kill()
	l.vm.Dir = l.t.TempDir()
	l.startExecutor()
}

// killKernel kills the kernel's process as an out-of-memory kill would.
func (l *lab) killKernel() {
	var record struct{ PID int }
	data, err := os.ReadFile(filepath.Join(l.vm.Dir, ".colab-relay", "kernel.json"))
	if err == nil && json.Unmarshal(data, &record) == nil && record.PID > 1 {
		_ = syscall.Kill(record.PID, syscall.SIGKILL)
	}
}
