package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/nbrun"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// cellModule is the module that the cells import: it says which kernel they run in, and keeps
// a line for each cell that runs.
const cellModule = `
import time, uuid
LIFE = uuid.uuid4().hex
def ran(notebook, cell, value, pause):
    with open(notebook + '.log', 'a') as log:
        log.write('{} {}\n'.format(LIFE, cell))
    time.sleep(pause)
    print('cell', cell, LIFE, value)
`

// killedNotebook is a notebook whose run is disturbed. Each cell adds one to what its parent
// made, so that it fails in a kernel in which the parent did not run.
type killedNotebook struct {
	t      *testing.T
	l      *lab
	random *rand.Rand
	name   string
	parent []int // of each cell; -1 for none
	fails  int   // the cell that raises; -1 for none
	faults []string
}

func newKilledNotebook(l *lab, random *rand.Rand, name string) *killedNotebook {
	n := &killedNotebook{t: l.t, l: l, random: random, name: name, fails: -1}
	for cell := range 6 + random.IntN(8) {
		parent := cell - 1
		if random.IntN(3) == 0 {
			parent = random.IntN(cell+1) - 1
		}
		n.parent = append(n.parent, parent)
	}
	if random.IntN(2) == 0 {
		n.fails = random.IntN(len(n.parent))
	}
	return n
}

func (n *killedNotebook) path() string { return filepath.Join(n.l.laptop.Dir, n.name+".ipynb") }

// code is the source of a cell.
func (n *killedNotebook) code(cell int) string {
	value := "0"
	if n.parent[cell] >= 0 {
		value = fmt.Sprintf("v%d + 1", n.parent[cell])
	}
	code := fmt.Sprintf("import marks\nv%d = %s\nmarks.ran(%q, %d, v%d, %.3f)", cell, value, n.name, cell, cell, float64(n.random.IntN(80))/1000)
	if cell == n.fails {
		code += "\nraise ValueError('as planned')"
	}
	return code
}

// write makes the file, and the module on the VM.
func (n *killedNotebook) write() {
	n.t.Helper()
	var cells []map[string]any
	for cell := range n.parent {
		cells = append(cells, map[string]any{
			"cell_type": "code", "id": fmt.Sprintf("cell%d", cell), "metadata": map[string]any{},
			"source": strings.SplitAfter(n.code(cell), "\n"), "outputs": []any{}, "execution_count": nil,
		})
	}
	text, err := json.MarshalIndent(map[string]any{"cells": cells, "metadata": map[string]any{}, "nbformat": 4, "nbformat_minor": 5}, "", " ")
	must(n.t, err)
	must(n.t, os.WriteFile(n.path(), text, 0o600))
	must(n.t, os.WriteFile(filepath.Join(n.l.vm.Dir, "marks.py"), []byte(cellModule), 0o600))
}

// skipped reports whether the cell needs what the failing cell would have made.
func (n *killedNotebook) skipped(cell int) bool {
	for p := n.parent[cell]; p >= 0; p = n.parent[p] {
		if p == n.fails {
			return true
		}
	}
	return false
}

func (n *killedNotebook) status(cell int) nbrun.CellStatus {
	switch {
	case cell == n.fails:
		return nbrun.CellFailed
	case n.skipped(cell):
		return nbrun.CellSkipped
	}
	return nbrun.CellSucceeded
}

// marks are the lines that cells of the notebook have left on the VM: life and cell.
func (n *killedNotebook) marks() (all [][2]string) {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.l.vm.Dir, n.name+".log"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		life, cell, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, [2]string{life, cell})
	}
	return all
}

// kills chooses what the run must survive.
func (n *killedNotebook) kills() (strikes []func()) {
	all := []struct {
		name   string
		strike func()
	}{{"kernel", n.l.killKernel}, {"relay", n.l.restartRelay}, {"executor", n.l.restartExecutor}}
	for range 1 + n.random.IntN(3) {
		kill := all[n.random.IntN(len(all))]
		n.faults = append(n.faults, kill.name)
		strikes = append(strikes, kill.strike)
	}
	return strikes
}

// run calls run_notebook as an agent does, until it is done. Each kill comes some time after a
// cell has begun, at a random one.
func (n *killedNotebook) run() harness.Answer {
	n.t.Helper()
	kills := n.kills()
	deadline := time.Now().Add(time.Minute)
	for calls := 1; time.Now().Before(deadline); calls++ {
		answered := make(chan harness.Answer, 1)
		host, failed := n.l.host, false
		ctx := within(n.t)
		go func() {
			a, err := host.Call(ctx, "run_notebook", map[string]any{"notebook_path": n.path(), "on_error": "skip_dependants", "on_new_kernel": "rerun"})
			if err != nil {
				a.Text, failed = err.Error(), true // the relay was killed
			}
			answered <- a
		}()
		for len(kills) > 0 && n.awaitStep(answered) {
			kills[0]()
			kills = kills[1:]
		}
		a := <-answered
		n.t.Logf("%s, call %d: %s", n.name, calls, firstLine(a.Text))
		if a.Error() == string(contract.CodeKernelDead) { // kernels died in a row: the agent is told to do this
			call(n.t, n.l.host, "restart_kernel", nil)
		}
		if a.String("status") == string(nbrun.StatusKernelDied) && slices.Contains(n.faults, "kernel") {
			continue // the cell under which the kernel was killed has failed: the agent runs the notebook again
		}
		if !failed && a.Fields["can_continue"] != true && nbrun.Status(a.String("status")).Finished() {
			return a
		}
	}
	n.t.Fatalf("%s did not finish", n.name)
	return harness.Answer{}
}

// awaitStep waits until some more cells have begun and then a moment. It reports false if the
// call ends before.
func (n *killedNotebook) awaitStep(answered chan harness.Answer) bool {
	steps := len(n.marks()) + n.random.IntN(4)
	every := time.NewTicker(2 * time.Millisecond)
	defer every.Stop()
	moment := time.Duration(n.random.IntN(100)) * time.Millisecond
	var since time.Time
	for since.IsZero() || time.Since(since) < moment {
		select {
		case a := <-answered:
			answered <- a
			return false
		case <-every.C:
		}
		if since.IsZero() && len(n.marks()) >= steps {
			since = time.Now()
		}
	}
	return true
}

// A notebook's run survives kills of the relay, the executor and the kernel at any step. Nothing
// runs twice in a kernel, and nothing is reported that did not happen.
func TestNotebookRunsLiveThroughKills(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	runs, seed := 4, uint64(1)
	if longSuites() {
		runs, seed = 60, uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	l := newLabOn(t, stacks.Old(t), "3s", "RELAY_TOOLSETS=core,notebook")
	for run := range runs {
		n := newKilledNotebook(l, random, fmt.Sprint("notebook", run))
		n.write()
		a := n.run()
		t.Logf("%s: %d cells, %d fails, killed: %v", n.name, len(n.parent), n.fails, n.faults)
		n.check(a)
		if t.Failed() {
			t.Fatalf("%s failed; its cells' parents are %v", n.name, n.parent)
		}
	}
}
