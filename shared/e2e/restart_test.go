package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// restartedLoop records each iteration that it completed. Every other iteration catches
// the interrupt of a restart, and must not count as completed.
const restartedLoop = `
try:
    time.sleep(0.1)
except KeyboardInterrupt:
    if i % 2:
        raise
else:
    with open('ended.txt', 'a') as ended:
        print(i, file=ended, flush=True)
    result = i
`

// A restart that another relay requests during a run is reported as a restart. It counts
// no iteration, and the same call continues the run.
func TestARestartByAnotherRelayIsNoErrorOfTheRun(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		dir := t.TempDir()
		e := startExecutor(t, harness.ExecutorConfig{Python: s.Python, Dir: dir})
		mine := startHost(t, e.Ready.LocalURL, harness.HostConfig{})
		other := startHost(t, e.Ready.LocalURL, harness.HostConfig{})
		rounds := 2
		if longSuites() {
			rounds = 12
		}
		for round := range rounds {
			restartDuringAChunkedRun(t, relays{dir, mine, other}, round)
		}
		restartDuringAPlainRun(t, relays{dir, mine, other})
	})
}

// relays are two relays of one executor, whose working directory is dir.
type relays struct {
	dir         string
	mine, other *harness.Host
}

// ended returns how many iterations were recorded.
func (r relays) ended() int {
	b, _ := os.ReadFile(filepath.Join(r.dir, "ended.txt"))
	return strings.Count(string(b), "\n")
}

// restart makes the other relay restart the kernel as soon as ready returns true.
func (r relays) restart(t *testing.T, ready func() bool) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := harness.Poll(within(t), func() (bool, error) { return ready(), nil })
		if err == nil {
			_, err = r.other.Call(within(t), "restart_kernel", nil)
		}
		done <- err
	}()
	return done
}

func restartDuringAChunkedRun(t *testing.T, r relays, round int) {
	t.Helper()
	before := r.ended()
	restarted := r.restart(t, func() bool { return r.ended() >= before+4+round%2 })
	args := map[string]any{
		"setup_code": "import time", "loop_code": restartedLoop, "n_iterations": 12, "batch_size": 12,
		"checkpoint_name": fmt.Sprintf("restarted %d", round),
	}
	a := call(t, r.mine, "run_chunked_operation", args)
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	want(t, a, map[string]any{"success": false, "status": "kernel_restarted"})
	if a.Error() != "kernel_restarted" || strings.Contains(a.Text, "KeyboardInterrupt") || strings.Contains(a.Text, "raised") || !strings.Contains(a.Text, "Call again") {
		t.Errorf("round %d: %s", round, a.Text)
	}
	if done, ran := a.Int("completed"), r.ended()-before; done > int64(ran) || done < int64(ran)-1 {
		t.Errorf("round %d: %d iterations are counted, %d were completed", round, done, ran)
	}
	again := call(t, r.mine, "run_chunked_operation", args)
	want(t, again, map[string]any{"success": true, "status": "finished", "completed": 12})
}

func restartDuringAPlainRun(t *testing.T, r relays) {
	t.Helper()
	restarted := r.restart(t, func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "started.txt"))
		return err == nil
	})
	// One statement: between two, the interrupt would hit IPython itself, which then logs an error.
	a := quick(t, r.mine, "import time\nwith open('started.txt', 'w'): time.sleep(60)")
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	want(t, a, map[string]any{"success": false, "status": "kernel_restarted", "stderr": ""})
	if a.Error() != "kernel_restarted" || strings.Contains(a.Text, "KeyboardInterrupt") {
		t.Errorf("%s", a.Text)
	}
	list := call(t, r.mine, "list_executions", nil)
	if !strings.Contains(list.Text, "kernel_restarted") {
		t.Errorf("list_executions does not mention it: %s", list.Text)
	}
	want(t, quick(t, r.mine, "1"), map[string]any{"success": true, "result": "1"})
}
