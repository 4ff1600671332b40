package chunked

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/checkpoint"
)

// TestNoIterationRunsTwiceInAKernelWhateverFails runs many runs against a VM that fails at
// random. The relay is also killed at random. make soak runs more of them.
func TestNoIterationRunsTwiceInAKernelWhateverFails(t *testing.T) {
	t.Parallel()
	first, last := 24, 39 // together these seeds have all faults
	if os.Getenv("LONG") != "" {
		first, last = 0, 4_999
	}
	faults := map[string]int{}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneRun(t, uint64(seed), faults) })
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%v", faults)
	for _, needed := range []string{"killed", "error", "stopped", "back", "kernels", "machines"} {
		if faults[needed] == 0 {
			t.Errorf("no %s happened: the test is too short", needed)
		}
	}
}

func oneRun(t *testing.T, seed uint64, faults map[string]int) {
	r := rand.New(rand.NewPCG(seed, 1))
	vm := newFakeVM(t, r)
	dir := t.TempDir()
	s := spec("setup", "loop", 20+r.Int64N(60))
	s.BatchSize = 1 + r.Int64N(15)
	path := checkpoint.Path(dir, s.Name)
	for calls := 0; ; calls++ {
		if calls > 3000 {
			vm.odds = 0 // no more faults: the run must finish
		}
		if calls > 3200 {
			t.Fatal("the run never ends")
		}
		s.OnChange = Refuse
		if r.Float64() < .02 {
			s.Loop, s.OnChange = s.Loop+"x", Continue
		}
		state, finished := oneCall(t, vm, dir, s, path, faults)
		for i := range min(state.Done, s.N) {
			if !vm.done[i] {
				t.Fatalf("iteration %d is recorded as done but never ran", i)
			}
		}
		for i, v := range state.Results {
			if string(v.Value) != fmt.Sprint(v.Iteration) || i > 0 && v.Iteration <= state.Results[i-1].Iteration {
				t.Fatalf("value %d is %s of %d", i, v.Value, v.Iteration)
			}
		}
		if finished {
			break
		}
	}
	if len(vm.repeated) > 0 {
		t.Fatalf("iterations ran twice in one kernel: %v", vm.repeated)
	}
	faults["kernels"] += vm.kernel - 1
	faults["machines"] += vm.instance - 1
}

// oneCall is one call. If the relay is killed during it, the file is restored to what it was
// at that moment.
func oneCall(t *testing.T, vm *fakeVM, dir string, s Spec, path string, faults map[string]int) (Record, bool) {
	var disk []byte
	vm.killed, vm.onKill = false, func() { disk, _ = os.ReadFile(path) }
	run, err := Open(dir, s)
	if err != nil {
		s.OnChange = Continue // the kill undid the recorded change of the code
		if run, err = Open(dir, s); err != nil {
			t.Fatal(err)
		}
	}
	defer run.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before := run.Record().Done
	out, err := run.Advance(ctx, vm, Options{Until: time.Now().Add(time.Duration(vm.r.IntN(40)) * time.Second), Live: vm.r.IntN(2) == 0})
	state := *run.Record()
	if !state.isConsistent() {
		b, _ := json.Marshal(state)
		t.Fatalf("an inconsistent record: %s", b)
	}
	switch {
	case vm.killed:
		faults["killed"]++
		if disk == nil {
			os.Remove(path)
		} else if err := os.WriteFile(path, disk, 0o600); err != nil {
			t.Fatal(err)
		}
		return state, false
	case err != nil:
		faults["error"]++
	case out.Stop != nil:
		faults["stopped"]++
	}
	if state.Done < before {
		faults["back"]++
		if !strings.Contains(strings.Join(out.Notes, ""), "run again") {
			t.Errorf("the record went back from %d to %d without a note: %q", before, state.Done, out.Notes)
		}
	}
	return state, err == nil && state.Status == StatusFinished
}
