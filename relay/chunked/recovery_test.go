package chunked

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/relay/kernelstate"
	"colabrelay/shared/contract"
)

// callWithKeeper makes a call that may keep variables between any two batches.
func callWithKeeper(t *testing.T, dir string, s Spec, m *machine, callTime time.Duration) attempt {
	t.Helper()
	r, err := Open(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), callTime+20*time.Second)
	defer cancel()
	var a attempt
	a.Outcome, a.err = r.Advance(ctx, m, Options{
		Until: time.Now().Add(callTime), Keep: KeepBounds{Share: 1e6, MaxBytes: 64 << 20},
		Keeper: kernelstate.NewKeeper(m.Client, dir, s.Name, s.Runtime),
	})
	a.Record = *r.Record()
	return a
}

// callUntilItStops makes calls until the run finishes or stops.
func callUntilItStops(t *testing.T, dir string, s Spec, m *machine) attempt {
	t.Helper()
	for range 100 {
		a := callWithKeeper(t, dir, s, m, 20*time.Second)
		if a.err != nil || a.Stop != nil || a.Status == StatusFinished {
			return a
		}
	}
	t.Fatal("the run never ends")
	return attempt{}
}

func notes(a attempt) string { return strings.Join(a.Notes, "; ") }

// gate makes iteration 30 raise until openGate was called.
const gate = "import os\nassert i < 30 or os.path.exists('go'), 'wait'\n"

func (m *machine) openGate() {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, "go"), nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) restartKernel() {
	m.t.Helper()
	if _, err := m.RestartKernel(m.t.Context(), m.kernelID()); err != nil {
		m.t.Fatal(err)
	}
}

// The sum of 0 to 39 is 780. A kernel that starts at 30 with a total of 0 gives 345.
func TestRunWithoutItsVariablesNeverFinishes(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec("total = 0", gate+"total += i\nresult = total", 40)
		if a := call(t, dir, s, m, long); a.Done != 30 {
			t.Fatalf("done %d, %v", a.Done, a.err)
		}
		m.restartKernel()
		m.openGate()
		for range 2 { // the second call stops as well
			a := call(t, dir, s, m, long)
			a.checkStop(t, stop{Status: StatusVariablesLost, Done: 30, Values: 30, Iteration: -1, Lost: []string{"total"}})
		}
		s.OnNewKernel = NewKernelRestart
		a := finish(t, dir, s, m)
		if got := string(a.Results[39].Value); got != "780" || a.Results[0].Iteration != 0 || !strings.Contains(notes(a), "starts again at iteration 0") {
			t.Errorf("started again, it gives %s, notes %q", got, a.Notes)
		}
	})
}

func TestRunContinuesWithoutItsVariablesIfRequested(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec("total = 0", gate+"total += i\nresult = total", 40)
		call(t, dir, s, m, long)
		m.restartKernel()
		m.openGate()
		s.OnNewKernel = NewKernelContinue
		if a := finish(t, dir, s, m); string(a.Results[39].Value) != "345" {
			t.Errorf("%s", a.Results[39].Value)
		}
	})
}

func TestLoopThatPassesNothingOnContinuesInANewKernel(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec("scale, names = 2, ['a', 'b']", gate+"x = scale * i\nresult = names[i % 2].upper() * x\nwith open('numbers', 'a') as f:\n    f.write(f'{i}\\n')", 40)
		if a := callUntilItStops(t, dir, s, m); a.Done != 30 || !a.Carried.isEmpty() || a.Kept != nil {
			t.Fatalf("done %d, carries %+v, kept %+v", a.Done, a.Carried, a.Kept)
		}
		m.restartKernel()
		m.openGate()
		if a := callUntilItStops(t, dir, s, m); a.Status != StatusFinished {
			t.Fatalf("%s %v", a.Status, a.why())
		}
		same(t, "numbers", numbers(t, m, "numbers"), upTo(40))
	})
}

// accumulator is a loop whose value at the end depends on the order and number of all
// iterations.
type accumulator struct{ setup, loop, value string }

var accumulators = map[string]accumulator{
	"number":  {"total = 7", "total = (total * 31 + i) % 1_000_003", "total"},
	"list":    {"trail = []", "trail.append(i)", "[len(trail), sum(trail)]"},
	"dict":    {"d = {}", "d[i % 3] = d.get(i % 3, '') + str(i)", "d"},
	"numpy":   {"import numpy as np\na = np.zeros((4, 4))\nrow = a[1]", "a[i % 4] = a[i % 4] * 3 % 1009 + i", "[a.tolist(), row.tolist()]"},
	"shared":  {"class Model: pass\nm = Model()\nm.w = [0]\nclass Optimizer:\n    def __init__(self, w): self.w = w\n    def step(self, i): self.w[0] = (self.w[0] * 31 + i) % 1009\nopt = Optimizer(m.w)", "opt.step(i)", "m.w"},
	"random":  {"import numpy as np\nrng = np.random.default_rng(3)", "drawn = float(rng.normal())", "drawn"},
	"global":  {"g = 0\ndef add(i):\n    global g\n    g = (g * 7 + i) % 1009", "add(i)", "g"},
	"by name": {"", "try:\n    b = (b * 7 + i) % 1009\nexcept NameError:\n    b = 5", "b"},
}

// deleting is an accumulator with a variable that an iteration deletes. It has a run of its
// own, because dir() in it looks at all names.
var deleting = map[string]accumulator{
	"deleted": {"distance = abs\nfirst = 1\nn = 0", "n += i + distance(first) if 'first' in dir() else i\nif i == 3:\n    del first", "n"},
}

// joined returns a run of all accumulators, whose results are dicts of their values.
func joined(all map[string]accumulator) Spec {
	var setup, loop, values strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		setup.WriteString(all[name].setup + "\n")
		loop.WriteString(all[name].loop + "\n")
		fmt.Fprintf(&values, "%q: %s, ", name, all[name].value)
	}
	return spec(setup.String(), loop.String()+"result = {"+values.String()+"}", 40)
}

// lastValues returns the values of the accumulators after the last iteration.
func (a attempt) lastValues(t *testing.T) map[string]any {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal(a.Results[len(a.Results)-1].Value, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestKeptVariablesAreRestoredIntoANewKernel(t *testing.T) {
	for name, all := range map[string]map[string]accumulator{"all": accumulators, "deleting": deleting} {
		t.Run(name, func(t *testing.T) {
			eachStack(t, func(t *testing.T, m *machine, dir string) {
				uninterrupted := joined(all)
				uninterrupted.Name, uninterrupted.BatchSize = "uninterrupted", 40
				want := finish(t, dir, uninterrupted, m).lastValues(t)
				m.python("%reset -f")
				run := joined(all)
				run.Loop = "import os\nif i == 25 and not os.path.exists('died'):\n    open('died', 'w').close()\n    os.kill(os.getpid(), 9)\n" + run.Loop
				a := callUntilItStops(t, dir, run, m)
				if a.Stop == nil || a.Stop.Execution.Status != contract.StatusKernelDied || a.Kept == nil || a.Kept.Done < 10 {
					t.Fatalf("before: %s at %d, kept %+v, carried %+v unkept %v, notes %q, %v", a.Status, a.Done, a.Kept, a.Carried, a.Unsaveable, a.Notes, a.err)
				}
				if a = callUntilItStops(t, dir, run, m); a.Status != StatusFinished || a.err != nil {
					t.Fatalf("after: %s at %d, %+v %v %q", a.Status, a.Done, a.Stop, a.err, a.Notes)
				}
				if diff := cmp.Diff(want, a.lastValues(t)); diff != "" {
					t.Errorf("values of the uninterrupted and the interrupted run (-want +got):\n%s\nnotes %q", diff, a.Notes)
				}
				if _, err := os.Stat(filepath.Join(dir, "kept", run.Name)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the kept variables were not deleted: %v", err)
				}
			})
		})
	}
}
