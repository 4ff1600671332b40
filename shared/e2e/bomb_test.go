package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// bombCode forks children that fork. They hold all sockets and pipes of the kernel, ignore the
// signals that can be ignored, and write down their process ids. A quarter of them leaves the
// kernel's process group.
const bombCode = `
import os, signal, time
def explode(depth):
    for child in range(2 if depth else 0):
        if os.fork() == 0:
            for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
            where = 'in'
            if depth == 1 and child: os.setsid(); where = 'out'
            with open('pids', 'a') as f: print(where, os.getpid(), file=f)
            explode(depth - 1)
            while True: time.sleep(60)
explode(%d)
`

// bombed is a VM whose kernel's children hold its sockets.
type bombed struct {
	t     *testing.T
	e     *harness.Executor
	host  *harness.Host
	depth int
}

// explode runs the bomb, and returns the children that stay in the kernel's process group.
func (b *bombed) explode() (inside []int) {
	b.t.Helper()
	file := filepath.Join(b.e.Config.Dir, "pids")
	must(b.t, os.RemoveAll(file))
	want(b.t, quick(b.t, b.host, fmt.Sprintf(bombCode, b.depth)), map[string]any{"success": true, "status": "succeeded"})
	var all []string
	must(b.t, harness.Poll(within.Context(b.t), func() (bool, error) {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		all = strings.Split(strings.TrimSpace(string(text)), "\n")
		return len(all) == 2<<b.depth-2, err
	}))
	for _, line := range all {
		var where string
		var pid int
		_, err := fmt.Sscan(line, &where, &pid)
		must(b.t, err)
		if where == "in" {
			inside = append(inside, pid)
		}
		b.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // those outside live until the VM ends
	}
	want(b.t, quick(b.t, b.host, "print('on')"), map[string]any{"success": true, "stdout": "on\n"})
	return inside
}

// over checks that the children are gone and that a new kernel works.
func (b *bombed) over(inside []int) {
	b.t.Helper()
	want(b.t, quick(b.t, b.host, "'explode' in globals()"), map[string]any{"success": true, "result": "False"})
	for _, pid := range inside {
		gone(b.t, pid)
	}
}

// Children that hold the kernel's sockets delay neither runs, nor a restart, nor the report that
// the kernel died. The kernel's process group ends with the kernel and with the executor.
func TestAForkBombThatHoldsTheSocketsDelaysNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := &bombed{t: t, depth: 5}
	b.e = startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python})
	b.host = startHost(t, b.e.Ready.LocalURL, harness.HostConfig{})

	inside := b.explode()
	want(t, call(t, b.host, "restart_kernel", nil), map[string]any{"success": true})
	b.over(inside)

	inside = b.explode()
	a := quick(t, b.host, "print('last words', flush=True)\ntime.sleep(.3)\nos.kill(os.getpid(), signal.SIGKILL)")
	want(t, a, map[string]any{"success": false, "status": "kernel_died", "stdout": "last words\n"})
	b.over(inside)

	inside = b.explode()
	b.e.Kill()
	b.e = startExecutor(t, b.e.Config)
	b.over(inside)
}
