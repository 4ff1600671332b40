package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

func (c *chunkedRun) do(ctx context.Context, s *scene) error {
	args := c.arguments(s)
	before, again := s.model.restoresBegun(), false
	for {
		a, err := s.call(ctx, "run_chunked_operation", args)
		if err != nil && !isNoAnswer(err) {
			return err
		}
		if a.Error() == string(contract.CodeKernelDead) {
			_, _ = s.answer(ctx, "restart_kernel", nil)
		}
		if err := c.check(s); err != nil {
			return err
		}
		delete(args, "on_change")
		switch chunked.Status(a.Error()) {
		case chunked.StatusVariablesLost, chunked.StatusVariablesChanged, chunked.StatusIncomplete:
			args["on_change"] = "restart"
			again = true
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the chunked run does not finish: %w: %s", ctx.Err(), a.Text)
		}
		if err == nil && a.Error() == "" && a.Int("completed") == int64(c.n) && a.Fields["can_continue"] != true {
			// A state of before the restart has the variables of the run that it replaced, and
			// knows nothing of the new one's iterations.
			overwritten := again && s.model.restoresBegun() > before
			return c.finished(s, a, overwritten)
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
	s.tally.add("iterations", c.n)
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
