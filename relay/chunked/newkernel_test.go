package chunked

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/kernelstate"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

// keeper is what a call gets that may keep at once and as often as it can.
type keeper struct {
	*kernelstate.Keeper
	bounds KeepBounds
}

var eager = KeepBounds{Share: 1e6, MaxBytes: 64 << 20}

func keeperOf(m *machine, dir string, s Spec) *keeper {
	return &keeper{kernelstate.NewKeeper(m.Client, dir, s.Name, s.Runtime), eager}
}

// keeping is one call with a keeper.
func keeping(t *testing.T, dir string, s Spec, m *machine, k *keeper, patience time.Duration) attempt {
	t.Helper()
	r, err := Open(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience+20*time.Second)
	defer cancel()
	var a attempt
	a.Outcome, a.err = r.Advance(ctx, m, Options{Until: time.Now().Add(patience), Keeper: k.Keeper, Keep: k.bounds})
	a.Record = *r.Record()
	return a
}

// until is calls until the run is finished or stops.
func until(t *testing.T, dir string, s Spec, m *machine) attempt {
	t.Helper()
	for range 100 {
		a := keeping(t, dir, s, m, keeperOf(m, dir, s), 20*time.Second)
		if a.err != nil || a.Stop != nil || a.Status == StatusFinished {
			return a
		}
	}
	t.Fatal("it never ends")
	return attempt{}
}

func notes(a attempt) string { return strings.Join(a.Notes, "; ") }

// halfway is a run that stopped after 30 of 40 iterations, as a user's error does.
const gate = "import os\nassert i < 30 or os.path.exists('go'), 'wait'\n"

func (m *machine) open() {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, "go"), nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) kill() {
	m.t.Helper()
	if _, err := m.RestartKernel(m.t.Context(), m.kernelID()); err != nil {
		m.t.Fatal(err)
	}
}

// The sum of 0 to 39 is 780. A kernel that begins at 30 with a total of 0 gives 345.
func TestARunWithoutItsVariablesIsNeverFinished(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec("total = 0", gate+"total += i\nresult = total", 40)
		if a := call(t, dir, s, m, long); a.Done != 30 {
			t.Fatalf("done %d, %v", a.Done, a.err)
		}
		m.kill()
		m.open()
		for range 2 { // and it stays so
			a := call(t, dir, s, m, long)
			if a.err != nil || a.Stop == nil || a.Stop.Lost == nil || !slices.Equal(a.Stop.Lost.Names, []string{"total"}) || a.Status != StatusVariablesLost || a.Done != 30 {
				t.Fatalf("%s, done %d, stop %+v, %v", a.Status, a.Done, a.Stop, a.err)
			}
		}
		s.OnNew = NewKernelRestart
		a := finish(t, dir, s, m)
		if got := string(a.Results[39].Value); got != "780" || a.Results[0].Iteration != 0 || !strings.Contains(notes(a), "begins again at iteration 0") {
			t.Errorf("begun again it gives %s, notes %q", got, a.Notes)
		}
	})
}

func TestARunGoesOnWithoutItsVariablesWhenAsked(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec("total = 0", gate+"total += i\nresult = total", 40)
		call(t, dir, s, m, long)
		m.kill()
		m.open()
		s.OnNew = NewKernelContinue
		if a := finish(t, dir, s, m); string(a.Results[39].Value) != "345" {
			t.Errorf("%s", a.Results[39].Value)
		}
	})
}

func TestALoopThatCarriesNothingGoesOnByItself(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		s := spec("scale, names = 2, ['a', 'b']", gate+"x = scale * i\nresult = names[i % 2].upper() * x\nwith open('numbers', 'a') as f:\n    f.write(f'{i}\\n')", 40)
		if a := until(t, dir, s, m); a.Done != 30 || !a.Carried.nothing() || a.Kept != nil {
			t.Fatalf("done %d, carries %+v, kept %+v", a.Done, a.Carried, a.Kept)
		}
		m.kill()
		m.open()
		if a := until(t, dir, s, m); a.Status != StatusFinished {
			t.Fatalf("%s %v", a.Status, a.why())
		}
		same(t, "numbers", numbers(t, m, "numbers"), upTo(40))
	})
}

// accumulators are loops whose last value depends on the order and number of all
// iterations.
var accumulators = map[string]struct{ setup, loop string }{
	"number":  {"total = 7", "total = (total * 31 + i) % 1_000_003\nresult = total"},
	"list":    {"trail = []", "trail.append(i)\nresult = [len(trail), sum(trail)]"},
	"dict":    {"d = {}", "d[i % 3] = d.get(i % 3, '') + str(i)\nresult = d"},
	"numpy":   {"import numpy as np\na = np.zeros((4, 4))\nrow = a[1]", "a[i % 4] = a[i % 4] * 3 % 1009 + i\nresult = [a.tolist(), row.tolist()]"},
	"shared":  {"class Model: pass\nm = Model()\nm.w = [0]\nclass Optimizer:\n    def __init__(self, w): self.w = w\n    def step(self, i): self.w[0] = (self.w[0] * 31 + i) % 1009\nopt = Optimizer(m.w)", "opt.step(i)\nresult = m.w"},
	"random":  {"import numpy as np\nrng = np.random.default_rng(3)", "result = float(rng.normal())"},
	"global":  {"n = 0\ndef add(i):\n    global n\n    n = (n * 7 + i) % 1009", "add(i)\nresult = n"},
	"by name": {"", "try:\n    n = (n * 7 + i) % 1009\nexcept NameError:\n    n = 5\nresult = n"},
	"gone":    {"first = 1\nn = 0", "n += i + distance(first) if 'first' in dir() else i\nif i == 3:\n    del first\nresult = n"},
}

func TestKeptVariablesComeBackByThemselves(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		for name, c := range accumulators {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m, dir := start(t, s, t.TempDir()), t.TempDir()
				setup := "distance = abs\n" + c.setup
				whole := spec(setup, c.loop, 40)
				whole.Name = "uninterrupted"
				want := string(finish(t, dir, whole, m).Results[39].Value)
				m.kill() // nothing is left of it
				run := spec(setup, "import os\nif i == 25 and not os.path.exists('died'):\n    open('died', 'w').close()\n    os.kill(os.getpid(), 9)\n"+c.loop, 40)
				run.Name = "killed"
				a := until(t, dir, run, m)
				if a.Stop == nil || a.Stop.Execution.Status != contract.StatusKernelDied || a.Kept == nil || a.Kept.Done < 10 {
					t.Fatalf("before: %s at %d, kept %+v, carries %+v unkept %v, notes %q, %v", a.Status, a.Done, a.Kept, a.Carried, a.Unkept, a.Notes, a.err)
				}
				if a = until(t, dir, run, m); a.Status != StatusFinished || a.err != nil {
					t.Fatalf("after: %s at %d, %+v %v %q", a.Status, a.Done, a.Stop, a.err, a.Notes)
				}
				if got := string(a.Results[39].Value); got != want {
					t.Errorf("it gives %s, an uninterrupted run %s; notes %q", got, want, a.Notes)
				}
				if _, err := os.Stat(filepath.Join(dir, "kept", "killed")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("what was kept is still there: %v", err)
				}
			})
		}
	})
}
