package cli

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/vm"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a client.Recorder that counts what it is told.
type counter struct{ submitted, answered, fetched int }

func (c *counter) Submitted(string, contract.Submit, contract.Execution) { c.submitted++ }

func (c *counter) Answered(string, contract.Execution) { c.answered++ }

func (c *counter) Fetched(string, string, contract.Blob, []byte) { c.fetched++ }

func TestTheKeeperAndTheHistorySeeTheSameRuns(t *testing.T) {
	for name, next := range map[string]*counter{"with a history": {}, "without one": nil} {
		t.Run(name, func(t *testing.T) {
			k := NewKeepAlive(vm.New(vm.Config{Dir: t.TempDir(), Pairings: pairing.Open(t.TempDir())}), false)
			var history func(string) client.Recorder
			if next != nil {
				history = func(string) client.Recorder { return next }
			}
			r := k.Record(history)("vm")
			e := contract.Execution{ExecutionID: "e1", Status: contract.StatusRunning}
			r.Submitted("i", contract.Submit{}, e)
			r.Answered("i", e)
			r.Fetched("i", "e1", contract.Blob{}, nil)
			if next != nil && *next != (counter{1, 1, 1}) {
				t.Errorf("the history was told %+v", *next)
			}
		})
	}
}

func TestTheKeeperAsksARealExecutorWhatItDoes(t *testing.T) {
	tier.Long(t)
	binary, err := harness.BuildExecutor(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within.Limit)
	defer cancel()
	secret := auth.GenerateSecret()
	e, err := harness.StartExecutor(ctx, harness.ExecutorConfig{Binary: binary, Python: stacks.Old(t).Python, Dir: t.TempDir(), Secret: secret.Reveal()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Kill()
	store := pairing.Open(t.TempDir())
	if _, err := store.Put(pairing.Runtime{Name: "vm", URL: e.Ready.LocalURL, Secret: secret}); err != nil {
		t.Fatal(err)
	}
	pool := runtimes.New(runtimes.Config{Getenv: func(string) string { return "" }, Pairings: store})
	defer pool.Close()
	k := &KeepAlive{pool: pool}
	vmOf, err := pool.Resolve("vm")
	if err != nil {
		t.Fatal(err)
	}
	submit := func(id, code string) (executionID string) {
		t.Helper()
		e, err := vmOf.Client.Submit(ctx, contract.Submit{RequestID: id, Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return e.ExecutionID
	}
	interrupt := func(executionID string) {
		t.Helper()
		if _, err := vmOf.Client.Interrupt(ctx, executionID); err != nil {
			t.Fatal(err)
		}
	}
	await := func(want vm.Work) {
		t.Helper()
		if err := harness.Poll(ctx, func() (bool, error) {
			got, err := k.work(ctx, "vm")
			return got == want, err
		}); err != nil {
			t.Fatalf("does not become %d: %v", want, err)
		}
	}
	await(vm.Idle)
	asks := submit("r1", "input('name')")
	await(vm.Waiting)
	works := submit("r2", "while True: pass") // behind the first one
	if got, err := k.work(ctx, "vm"); err != nil || got != vm.Waiting {
		t.Errorf("with a run that is queued: %d, %v", got, err)
	}
	interrupt(asks)
	await(vm.Working)
	interrupt(works)
	await(vm.Idle)
	if _, err := k.work(ctx, "another"); err == nil {
		t.Error("a runtime that is not paired works")
	}
}
