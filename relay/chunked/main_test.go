package chunked

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

const secret = "a secret of the tests of chunked runs, 32 bytes or more"

// pool has the executors, with real kernels, that the tests share.
var pool = harness.Pool{Secret: secret}

func TestMain(m *testing.M) { pool.Main(m) }

// machine is a real executor with a real kernel.
type machine struct {
	*client.Client
	*harness.Executor
	t   *testing.T
	dir string // the working directory
}

// borrow returns a machine of the pool with an empty working directory and namespace.
func borrow(t *testing.T, s stacks.Stack) *machine {
	t.Helper()
	m := newMachine(t, pool.Borrow(t, s.Python))
	t.Cleanup(m.reset)
	return m
}

// reset makes the kernel ready for the next test, before the pool empties the folders.
func (m *machine) reset() {
	code := "%reset -f\nimport sys; sys.modules.pop('colab_relay_runs', None)\n%reset -f"
	e, err := m.Submit(context.Background(), contract.Submit{Code: code, WaitSeconds: 50, Unstored: true})
	if err != nil || e.Status != contract.StatusSucceeded {
		m.t.Errorf("resetting the kernel: %s %+v, %v", e.Status, e.Error, err)
	}
}

// start starts a machine that the test may kill. On a folder that was used before, it is
// the same instance.
func start(t *testing.T, s stacks.Stack, dir string) *machine {
	t.Helper()
	e, err := harness.StartExecutor(t.Context(), harness.ExecutorConfig{Binary: pool.Binary, Python: s.Python, Dir: dir, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return newMachine(t, e)
}

func newMachine(t *testing.T, e *harness.Executor) *machine {
	t.Helper()
	return &machine{Client: connect(t, e.Ready.LocalURL), Executor: e, t: t, dir: e.Config.Dir}
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

// python runs code outside of any run and returns what it printed.
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

// kernelID returns the current kernel's id.
func (m *machine) kernelID() string {
	m.t.Helper()
	k, err := m.CurrentKernel(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return k.KernelID
}

// attempt is the result of one call.
type attempt struct {
	Outcome
	Record
	printed string
	err     error
}

// call does what one call of run_chunked_operation does in this package. The call's time is
// over after callTime.
func call(t *testing.T, dir string, s Spec, vm VM, callTime time.Duration) attempt {
	t.Helper()
	return callWithin(t, dir, s, vm, callTime, callTime+10*time.Second)
}

// callWithin is a call whose requests end after limit as well.
func callWithin(t *testing.T, dir string, s Spec, vm VM, callTime, limit time.Duration) attempt {
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
		Until: time.Now().Add(callTime),
		Output: func(_ string, events []contract.Event) {
			for _, ev := range events {
				a.printed += ev.Text
			}
		},
	})
	a.Record = *r.Record()
	return a
}

// stop is what the tests compare of an attempt that stopped.
type stop struct {
	Status    Status
	EName     string
	Done      int64
	Values    int
	Iteration int64 // the one that raised, -1 for none
	Setup     bool
	Refused   bool
	Lost      []string
}

// checkStop ends the test unless the attempt stopped in this way.
func (a attempt) checkStop(t *testing.T, want stop) {
	t.Helper()
	if a.err != nil || a.Stop == nil {
		t.Fatalf("it did not stop: %s after %d of %d, error %v", a.Status, a.Done, a.N, a.err)
	}
	got := stop{Status: a.Status, Done: a.Done, Values: len(a.Results), Iteration: -1, Setup: a.Stop.Setup, Refused: a.Stop.Refused}
	if a.Stop.Iteration != nil {
		got.Iteration = *a.Stop.Iteration
	}
	if e := a.Stop.Execution.Error; e != nil {
		got.EName = e.EName
	}
	if a.Stop.Lost != nil {
		got.Lost = a.Stop.Lost.Names
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("how it stopped (-want +got):\n%s\n%s", diff, a.why())
	}
}

// why returns the traceback of the error that stopped the run.
func (a attempt) why() string {
	if a.Stop == nil {
		return ""
	}
	e := a.Stop.Execution
	if e.Error == nil {
		return string(e.Status) + ": " + e.Reason
	}
	return plain.Text(strings.Join(e.Error.Traceback, "\n"))
}

const long = 60 * time.Second

// finish makes a call that must finish the run.
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

// eachStack runs f in parallel on every stack, with a machine of the pool and an empty
// checkpoint folder.
func eachStack(t *testing.T, f func(t *testing.T, m *machine, dir string)) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		f(t, borrow(t, s), t.TempDir())
	})
}
