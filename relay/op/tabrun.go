package op

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"colabrelay/relay/cells"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// Notes about runs in a tab.
const (
	ownKernelNote = "it ran in the notebook's own kernel in Colab: the executor's kernel has other variables"
	noTimeoutNote = "timeout_seconds has no effect here: Colab's page cannot interrupt a cell, only the person at the page can"
)

// usualTimeout is the default of timeout_seconds.
const usualTimeout = 600

// runInTab runs a cell in the notebook's own kernel, as long as this call may wait.
func (c *call) runInTab(ctx context.Context, args runCellArgs) (*Run, error) {
	tab, err := c.tab()
	if err != nil {
		return nil, err
	}
	if c.progress != nil {
		c.progress.waitFor("running in Colab's tab, no output yet")
	}
	ran, err := tab.Run(ctx, args.Cell, c.waitBudget())
	switch {
	case err != nil:
		return nil, err
	case ran.Running && errors.Is(ctx.Err(), context.Canceled):
		return nil, cancelledProblem
	}
	exec, view := contract.Execution{Status: contract.StatusRunning, StartedAt: &ran.Started}, render.View{}
	if !ran.Running {
		now := time.Now()
		exec.Status, exec.FinishedAt = contract.StatusSucceeded, &now
		col := render.New(render.Options{Dir: c.outputDir("tab", "tab-"+rand.Text()), Holding: &c.held, New: true, Unpaged: true, Limit: viewLimit(c.cfg.TextLimit)})
		view = cells.View(ctx, col, ran.Outputs)
	}
	if view.Error != nil {
		exec.Status, exec.Error = contract.StatusFailed, &contract.ExecutionError{EName: view.Error.EName, EValue: view.Error.EValue}
		if exec.Error.EName == "KeyboardInterrupt" { // by the person at the page
			exec.Status = contract.StatusInterrupted
		}
	}
	run := newRun(exec, view) // without id and offsets, because no executor has it
	c.pictures = view.Pictures
	run.NextOffset, run.limit, run.inTab = 0, c.cfg.TextLimit, true
	run.Notes = append(append(run.Notes, ownKernelNote), ran.Notes...)
	if args.Timeout != usualTimeout {
		run.Notes = append(run.Notes, noTimeoutNote)
	}
	switch {
	case ran.Running:
		run.NextCommand = command("run_code_cell", "cellId", args.Cell)
	case run.Truncated:
		run.NextCommand = command("get_cells", "cellId", args.Cell)
	}
	if view.Error == nil {
		return run, nil
	}
	problem := runProblem(exec)
	problem.Traceback = view.Error.Traceback
	return run, problem
}
