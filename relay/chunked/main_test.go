package chunked

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

const secret = "a secret of the tests of chunked runs, 32 bytes or more"

var executor string // the real program

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "chunked-")
	if err == nil {
		executor = filepath.Join(dir, "executor")
		build := exec.Command("go", "build", "-o", executor, "./executor")
		build.Dir = stacks.Root()
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the executor:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// machine is a real executor with a real kernel.
type machine struct {
	*client.Client
	*harness.Executor
	t   *testing.T
	dir string
}

// start starts one; on a folder used before it is the same instance again.
func start(t *testing.T, s stacks.Stack, dir string) *machine {
	t.Helper()
	e, err := harness.StartExecutor(t.Context(), harness.ExecutorConfig{Binary: executor, Python: s.Python, Dir: dir, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return &machine{Client: connect(t, e.Ready.LocalURL), Executor: e, t: t, dir: dir}
}

func connect(t *testing.T, url string) *client.Client {
	t.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: url, Secret: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// python runs code apart from any run and gives what it printed.
func (m *machine) python(code string) string {
	m.t.Helper()
	e, err := m.Submit(m.t.Context(), contract.Submit{Code: code, WaitSeconds: 30})
	if err != nil || e.Status != contract.StatusSucceeded {
		m.t.Fatalf("%s: %v %+v", code, err, e.Error)
	}
	var out strings.Builder
	for _, ev := range e.Events {
		out.WriteString(ev.Text)
	}
	return out.String()
}

// kernelID is the kernel that runs now.
func (m *machine) kernelID() string {
	m.t.Helper()
	k, err := m.CurrentKernel(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return k.KernelID
}

// attempt is what one call came to.
type attempt struct {
	Outcome
	Record
	printed string
	err     error
}

// call is one call of run_chunked_operation, as far as this package goes. Its
// time is over after patience.
func call(t *testing.T, dir string, s Spec, vm VM, patience time.Duration) attempt {
	t.Helper()
	return callWithin(t, dir, s, vm, patience, patience+10*time.Second)
}

// callWithin is a call whose requests end after limit, too.
func callWithin(t *testing.T, dir string, s Spec, vm VM, patience, limit time.Duration) attempt {
	t.Helper()
	r, err := Open(dir, s)
	if err != nil {
		return attempt{err: err}
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var a attempt
	a.Outcome, a.err = r.Advance(ctx, vm, Options{
		Until: time.Now().Add(patience),
		Output: func(_ string, events []contract.Event) {
			for _, ev := range events {
				a.printed += ev.Text
			}
		},
	})
	a.Record = *r.Record()
	return a
}

// why is the traceback of what stopped the run.
func (a attempt) why() string {
	if a.Stop == nil {
		return ""
	}
	e := a.Stop.Execution
	if e.Error == nil {
		return string(e.Status) + ": " + e.Reason
	}
	return plain(strings.Join(e.Error.Traceback, "\n"))
}

const long = 60 * time.Second

// finish is a call that must finish the run.
func finish(t *testing.T, dir string, s Spec, vm VM) attempt {
	t.Helper()
	a := call(t, dir, s, vm, long)
	if a.err != nil || a.Stop != nil || a.Status != StatusFinished || a.Done != s.N || a.Remaining() != 0 {
		t.Fatalf("not finished: error %v, %s after %d of %d\n%s", a.err, a.Status, a.Done, s.N, a.why())
	}
	return a
}

func spec(setup, loop string, n int64) Spec {
	return Spec{Name: "run", Setup: setup, Loop: loop, N: n, BatchSize: 10, OnChange: Refuse}
}

// eachStack runs f with a fresh machine and checkpoint folder on every stack, on all
// of them at once.
func eachStack(t *testing.T, f func(t *testing.T, m *machine, dir string)) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		f(t, start(t, s, t.TempDir()), t.TempDir())
	})
}
