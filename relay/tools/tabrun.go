package tools

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
	case ran.Running:
		run := c.tabRun(args, contract.Execution{Status: contract.StatusRunning, StartedAt: &ran.Started}, render.View{})
		run.NextCommand = command("run_code_cell", "cellId", args.Cell)
		return run, nil
	}
	return c.ranInTab(ctx, args, ran)
}

// ranInTab is the answer about a cell that has ended.
func (c *call) ranInTab(ctx context.Context, args runCellArgs, ran *cells.Ran) (*Run, error) {
	now := time.Now()
	exec := contract.Execution{Status: contract.StatusSucceeded, StartedAt: &ran.Started, FinishedAt: &now}
	col := render.New(render.Options{Dir: c.outputDir("tab", "tab-"+rand.Text()), Holding: &c.held, New: true, Unpaged: true, Limit: viewLimit(c.cfg.TextLimit)})
	defer col.Close()
	view := cells.View(ctx, col, ran.Outputs)
	c.pictures = view.Pictures
	if view.Error != nil {
		exec.Status, exec.Error = contract.StatusFailed, &contract.ExecutionError{EName: view.Error.EName, EValue: view.Error.EValue}
		if exec.Error.EName == "KeyboardInterrupt" { // by the person at the page
			exec.Status = contract.StatusInterrupted
		}
	}
	run := c.tabRun(args, exec, view)
	if run.Truncated {
		run.NextCommand = command("get_cells", "cellId", args.Cell)
	}
	run.Notes = append(run.Notes, ran.Notes...)
	if problem := runProblem(exec); problem != nil {
		problem.Traceback = view.Error.Traceback
		return run, problem
	}
	return run, nil
}

// tabRun makes an answer; its run has no id and no offsets, because no executor has it.
func (c *call) tabRun(args runCellArgs, exec contract.Execution, view render.View) *Run {
	run := newRun(exec, view)
	run.NextOffset, run.limit, run.inTab = 0, c.cfg.TextLimit, true
	run.Notes = append(run.Notes, ownKernelNote)
	if args.Timeout != usualTimeout {
		run.Notes = append(run.Notes, noTimeoutNote)
	}
	return run
}
