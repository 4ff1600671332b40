package kernelstate

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// The executor in these tests is the real one, with a real kernel and real files.

const secret = "a secret of relay/kernelstate's tests, 32 bytes or more"

// pool has the executors that the tests share.
var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

// vm is an executor with a kernel, its own working directory and temp folder, and a
// client of it.
type vm struct {
	t      testing.TB
	dir    string
	temp   string
	config harness.ExecutorConfig
	exec   *harness.Executor
	client *client.Client
}

// borrowVM returns a VM of the pool with empty folders and an empty namespace. The modules
// that earlier tests imported are still loaded, unless the test calls newKernel.
func borrowVM(t testing.TB, s stacks.Stack) *vm {
	t.Helper()
	e := pool.Borrow(t, s.Python)
	v := &vm{t: t, dir: e.Config.Dir, temp: filepath.Join(e.Config.Dir, harness.TempFolder), config: e.Config, exec: e}
	v.connect()
	t.Cleanup(v.reset)
	return v
}

// reset makes the kernel ready for the next test, before the pool empties the folders.
func (v *vm) reset() {
	code := "%reset -f\nimport sys\nfor n, m in list(sys.modules.items()):\n    if m is None or n == 'colab_relay_runs': del sys.modules[n]\n%reset -f"
	e, err := v.client.Submit(context.Background(), contract.Submit{Code: code, WaitSeconds: 50, Unstored: true})
	if err != nil || e.Status != contract.StatusSucceeded {
		v.t.Errorf("resetting the kernel: %s %+v, %v", e.Status, e.Error, err)
	}
}

// newVM starts a VM that the test may change in any way.
func newVM(t testing.TB, s stacks.Stack, env ...string) *vm {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	v := &vm{t: t, dir: dir, temp: filepath.Join(dir, "temp")}
	must(t, os.Mkdir(v.temp, 0o700))
	v.config = harness.ExecutorConfig{
		Binary: pool.Binary, Python: s.Python, Dir: dir, Secret: secret, Env: append([]string{"TMPDIR=" + v.temp}, env...),
	}
	v.start()
	t.Cleanup(v.stop)
	return v
}

func (v *vm) start() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	var err error
	v.exec, err = harness.StartExecutor(ctx, v.config)
	must(v.t, err)
	v.connect()
}

func (v *vm) connect() {
	v.t.Helper()
	key, err := auth.NewSecret(secret)
	must(v.t, err)
	v.client, err = client.New(client.Config{BaseURL: v.exec.Ready.LocalURL, Secret: key})
	must(v.t, err)
	v.t.Cleanup(v.client.Close)
}

func (v *vm) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	if err := v.exec.Stop(ctx); err != nil && !strings.Contains(err.Error(), "killed") {
		v.t.Errorf("stopping the executor: %v", err)
	}
}

// run runs a cell as a user would and returns what it printed.
func (v *vm) run(code string) string {
	v.t.Helper()
	e, err := v.client.Submit(v.t.Context(), contract.Submit{Code: code, WaitSeconds: 50})
	var text strings.Builder
	for {
		must(v.t, err)
		for _, event := range e.Events {
			text.WriteString(event.Text)
		}
		if e.End {
			break
		}
		e, err = v.client.Execution(v.t.Context(), e.ExecutionID, e.NextOffset, contract.MaxWait, 0)
	}
	if e.Status != contract.StatusSucceeded {
		v.t.Fatalf("the cell ended as %s: %+v\n%s", e.Status, e.Error, text.String())
	}
	return text.String()
}

// forget empties the user's namespace, for tests that need no other process to restore into.
func (v *vm) forget() {
	v.t.Helper()
	v.run("%reset -f")
}

// options leave enough time for the whole operation.
func options(name string) Options {
	return Options{Name: name, Runtime: "test", Until: time.Now().Add(within.Limit)}
}

func (v *vm) save(dir, name string) Saved {
	v.t.Helper()
	s, err := Save(v.t.Context(), v.client, dir, options(name))
	must(v.t, err)
	if !s.Done() {
		v.t.Fatalf("not done: %+v", s.Progress)
	}
	return s
}

func (v *vm) restore(dir, name string) Restored {
	v.t.Helper()
	r, err := Restore(v.t.Context(), v.client, dir, options(name))
	must(v.t, err)
	if !r.Done() {
		v.t.Fatalf("not done: %+v", r.Progress)
	}
	return r
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
