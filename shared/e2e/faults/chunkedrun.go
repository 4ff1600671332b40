package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// chunkedRun is a loop in rounds. With carried set, each iteration builds on the one before.
type chunkedRun struct {
	name    string
	n       int
	batch   int
	pauseMS int
	carried bool
}

func newChunked(r *rand.Rand, name string) operation {
	return &chunkedRun{name, 10 + r.IntN(50), 1 + r.IntN(20), r.IntN(40), r.IntN(2) == 0}
}

func (c *chunkedRun) String() string {
	if c.carried {
		return fmt.Sprintf("a chunked run of %d iterations that build on each other", c.n)
	}
	return fmt.Sprintf("a chunked run of %d iterations", c.n)
}

// lifeCode names the kernel's process by its id and start time.
const lifeCode = "import os, time\nLIFE = '%d.%s' % (os.getpid(), open('/proc/self/stat').read().rsplit(')')[1].split()[19])\n"

func (c *chunkedRun) arguments(s *scene) map[string]any {
	loop := lifeCode + fmt.Sprintf("time.sleep(%g)\nwith open(%q, 'a') as ledger: ledger.write('iter %s {} {}\\n'.format(LIFE, i))\n",
		float64(c.pauseMS)/1000, s.world.ledgerPath(), c.name)
	setup := "# no variables\n"
	if c.carried { // a variable of its own, which no other run changes
		total := "total_" + c.name
		setup = total + " = 7\n"
		loop += fmt.Sprintf("%[1]s = (%[1]s * 31 + i) %% 1_000_003\nresult = %[1]s\n", total)
	} else {
		loop += "result = i * i\n"
	}
	return map[string]any{"setup_code": setup, "loop_code": loop, "n_iterations": c.n, "batch_size": c.batch, "checkpoint_name": c.name}
}

// result is what the last iteration assigns to result.
func (c *chunkedRun) result() int {
	if !c.carried {
		return (c.n - 1) * (c.n - 1)
	}
	total := 7
	for i := range c.n {
		total = (total*31 + i) % 1_000_003
	}
	return total
}

func (c *chunkedRun) do(ctx context.Context, s *scene) {
	args := c.arguments(s)
	before, again := s.model.restoresBegun(), false
	for {
		a, err := s.call(ctx, "run_chunked_operation", args)
		if !isNoAnswer(err) {
			harness.Check(err)
		}
		if a.Error() == string(contract.CodeKernelDead) {
			_, _ = s.answer(ctx, "restart_kernel", nil)
		}
		harness.Check(c.check(s))
		delete(args, "on_change")
		switch chunked.Status(a.Error()) {
		case chunked.StatusVariablesLost, chunked.StatusVariablesChanged, chunked.StatusIncomplete:
			args["on_change"] = "restart"
			again = true
		}
		harness.FailIf(ctx.Err() != nil, "the chunked run does not finish: %w: %s", ctx.Err(), a.Text)
		if err == nil && a.Error() == "" && a.Int("completed") == int64(c.n) && a.Fields["can_continue"] != true {
			// A state of before the restart has the variables of the run that it replaced, and
			// knows nothing of the new one's iterations.
			overwritten := again && s.model.restoresBegun() > before
			harness.Check(c.finished(s, a, overwritten))
			return
		}
	}
}

// check: the progress on the laptop is never ahead of the VM, and no iteration ran twice in one
// kernel unless its variables were taken back.
func (c *chunkedRun) check(s *scene) error {
	r, err := chunked.Load(filepath.Join(s.laptop.dir, "checkpoints"), c.name)
	if errors.Is(err, checkpoint.ErrNotFound) {
		r, err = &chunked.Record{}, nil
	}
	if err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	ledger, err := readLedger(s.world.ledgerPath()) // after the checkpoint, and before the restores: both only grow
	if err != nil {
		return err
	}
	return c.checkRan(r.Done, ledger, s.model.restoresBegun())
}

// checkRan compares the recorded iterations with those that ran. A restored state takes the run
// back to the iteration at which it was saved, so each restore excuses one more time.
func (c *chunkedRun) checkRan(done int64, ledger map[string]int, restores int) error {
	ran := map[string]bool{}
	for mark, n := range ledger {
		rest, ok := strings.CutPrefix(mark, "iter "+c.name+" ")
		if !ok {
			continue
		}
		if n > 1+restores {
			return fmt.Errorf("iteration %s ran %d times in one kernel, with %d restored states", rest, n, restores)
		}
		_, i, _ := strings.Cut(rest, " ")
		ran[i] = true
	}
	for i := range done {
		if !ran[fmt.Sprint(i)] {
			return fmt.Errorf("%d iterations are recorded, and %d never ran", done, i)
		}
	}
	return nil
}

// finished checks the values that the iterations left. If a restored state may have overwritten
// the variables that they pass on, it checks the numbers of the results only.
func (c *chunkedRun) finished(s *scene, a harness.Answer, overwritten bool) error {
	s.tally.add(didLine, "iterations", c.n)
	r, err := chunked.Load(filepath.Join(s.laptop.dir, "checkpoints"), c.name)
	if err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	if r.Done != int64(c.n) || len(r.Results) != c.n {
		return fmt.Errorf("the finished run has %d iterations and %d results of %d", r.Done, len(r.Results), c.n)
	}
	for i, v := range r.Results {
		if v.Iteration != int64(i) {
			return fmt.Errorf("result %d is of iteration %d", i, v.Iteration)
		}
	}
	if c.carried && overwritten {
		return nil
	}
	var last int
	if err := json.Unmarshal(r.Results[c.n-1].Value, &last); err != nil || last != c.result() {
		return fmt.Errorf("the last result is %s, want %d: %s", r.Results[c.n-1].Value, c.result(), a.Text)
	}
	return nil
}

// notebookRun runs a notebook whose cells build on each other.
type notebookRun struct {
	name    string
	cells   int
	pauseMS int
}

func newNotebook(r *rand.Rand, name string) operation {
	return &notebookRun{name, 3 + r.IntN(10), r.IntN(80)}
}

func (n *notebookRun) String() string { return fmt.Sprintf("a notebook of %d cells", n.cells) }

// cell is the source of a cell: it fails in a kernel in which the one before did not run.
func (n *notebookRun) cell(s *scene, k int) string {
	value := "0"
	if k > 0 {
		value = fmt.Sprintf("%s_%d + 1", n.name, k-1)
	}
	return fmt.Sprintf("%s%s_%d = %s\nwith open(%q, 'a') as ledger: ledger.write('cell %s {} %d\\n'.format(LIFE))\ntime.sleep(%g)\nprint('cell', %d, LIFE, %s_%d)",
		lifeCode, n.name, k, value, s.world.ledgerPath(), n.name, k, float64(n.pauseMS)/1000, k, n.name, k)
}

func (n *notebookRun) write(ctx context.Context, s *scene, path string) error {
	var cells []map[string]any
	for k := range n.cells {
		cells = append(cells, map[string]any{
			"cell_type": "code", "id": fmt.Sprintf("cell%d", k), "metadata": map[string]any{},
			"source": n.cell(s, k), "outputs": []any{}, "execution_count": nil,
		})
	}
	text, err := json.Marshal(map[string]any{"cells": cells, "metadata": map[string]any{}, "nbformat": 4, "nbformat_minor": 5})
	if err != nil {
		return err
	}
	return s.write(ctx, path, text)
}

func (n *notebookRun) do(ctx context.Context, s *scene) {
	path := filepath.Join(s.laptop.dir, n.name+".ipynb")
	harness.Check(n.write(ctx, s, path))
	for {
		a := harness.Must(s.ask(ctx, "run_notebook", map[string]any{"notebook_path": path, "on_new_kernel": "rerun"}, nil))
		if a.Error() == "" && a.Fields["can_continue"] != true {
			harness.FailIf(a.String("status") != "succeeded", "the notebook is %s: %s", a.String("status"), a.Text)
			s.tally.add(didLine, "cells", n.cells)
			harness.Check(n.check(s, path))
			return
		}
	}
}

// check: the outputs are those of the cells, which ran once in one kernel.
func (n *notebookRun) check(s *scene, path string) error {
	var file struct {
		Cells []struct {
			Outputs []struct {
				Text any `json:"text"`
			} `json:"outputs"`
		} `json:"cells"`
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		return err
	}
	ledger, err := readLedger(s.world.ledgerPath())
	if err != nil {
		return err
	}
	life := ""
	for k, c := range file.Cells {
		printed := ""
		for _, o := range c.Outputs {
			printed += joined(o.Text)
		}
		if s.excuses.all(vmDiskFull|executorEnds) && strings.Contains(printed, "[output is missing here: the VM lost it") {
			continue // and the notebook says so
		}
		fields := strings.Fields(printed)
		if len(fields) != 4 || fields[1] != fmt.Sprint(k) || fields[3] != fmt.Sprint(k) {
			return fmt.Errorf("the outputs of cell %d are %q", k, printed)
		}
		if life == "" {
			life = fields[2]
		}
		if ran := ledger[fmt.Sprintf("cell %s %s %d", n.name, fields[2], k)]; ran != 1 || fields[2] != life {
			return fmt.Errorf("cell %d shows what ran %d times in the kernel %s, the first cell ran in %s", k, ran, fields[2], life)
		}
	}
	return nil
}

// joined is a multi-line string of nbformat: a string or a list of them.
func joined(text any) string {
	lines, ok := text.([]any)
	if !ok {
		return fmt.Sprint(text)
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprint(&b, line)
	}
	return b.String()
}

// state saves variables on the laptop and restores them.
type state struct {
	name  string
	value int
}

func newState(r *rand.Rand, name string) operation { return &state{name, r.IntN(1 << 30)} }

func (v *state) String() string { return "variables saved and restored" }

func (v *state) do(ctx context.Context, s *scene) {
	for n := 0; ; n++ {
		if harness.Must(v.save(ctx, s, n)) {
			break
		}
	}
	for n := 0; ; n++ {
		harness.Must(s.untilDone(ctx, "restore_kernel_state", map[string]any{"name": v.name}, nil))
		id := fmt.Sprintf("%sb%d", v.name, n)
		x := harness.Must(s.once(ctx, id, fmt.Sprintf("print(globals().get('%s', 'gone'))", v.name), ""))
		if x.lossy && gapLine.MatchString(x.output) {
			continue // what it printed is gone
		}
		switch x.output {
		case fmt.Sprintf("%d\n", v.value):
			s.tally.add(didLine, "states", 1)
			return
		case "gone\n", "":
			harness.FailIf(!s.excuses.any(kernelEnds) && x.reported == contract.StatusSucceeded, "%s was restored, and is gone", v.name)
		default:
			harness.FailIf(true, "%s was restored as %q, want %d", v.name, x.output, v.value)
		}
	}
}

// save sets the variable, saves it and deletes it. kept is false if the kernel ended between.
func (v *state) save(ctx context.Context, s *scene, n int) (kept bool, err error) {
	if _, err := s.once(ctx, fmt.Sprintf("%sa%d", v.name, n), fmt.Sprintf("%s = %d", v.name, v.value), ""); err != nil {
		return false, err
	}
	a, err := s.untilDone(ctx, "save_kernel_state", map[string]any{"name": v.name}, nil)
	if err != nil {
		return false, err
	}
	kept = strings.Contains(fmt.Sprint(a.Fields["variables"]), v.name)
	if !kept && !s.excuses.any(kernelEnds|networkFails|relayEnds|crowded) {
		return false, fmt.Errorf("the saved state lacks %s: %s", v.name, a.Text)
	}
	_, err = s.once(ctx, fmt.Sprintf("%sd%d", v.name, n), fmt.Sprintf("globals().pop('%s', None)", v.name), "")
	return kept, err
}

// once submits a run that must end well unless the step excuses it, and takes what it printed
// as its output.
func (s *scene) once(ctx context.Context, id, code, output string) (*submission, error) {
	x := s.submission(id, code, output)
	x.anything = true
	a, begun, err := s.begin(ctx, x)
	for err == nil && begun && !x.over() {
		a, begun, err = s.get(ctx, x, 0, 3)
	}
	if err == nil && begun && x.reported == contract.StatusSucceeded {
		x.output = a.String("stdout")
	}
	return x, err
}

// variable sets a variable and looks at it.
type variable struct {
	name  string
	value int
}

func newVariable(r *rand.Rand, name string) operation { return &variable{name, r.IntN(1 << 30)} }

func (v *variable) String() string { return "a variable that is inspected" }

func (v *variable) do(ctx context.Context, s *scene) {
	x := harness.Must(s.once(ctx, v.name+"r", fmt.Sprintf("%s = %d", v.name, v.value), ""))
	if x.reported != contract.StatusSucceeded { // or it was never submitted
		return
	}
	a := harness.Must(s.ask(ctx, "inspect_variable", map[string]any{"name": v.name}, accepted{string(contract.CodeNotFound): kernelEnds}))
	preview := a.String("preview")
	harness.FailIf(a.Error() == "" && preview != fmt.Sprint(v.value), "%s is shown as %q, want %d", v.name, preview, v.value)
	harness.Must(s.ask(ctx, "list_colab_variables", nil, nil))
}
