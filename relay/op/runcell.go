package op

import (
	"context"
	"strings"
	"time"

	"colabrelay/relay/hint"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

type runCellArgs struct {
	notebookTarget
	Cell    string  `json:"cellId" min:"1" max:"200" doc:"From get_cells."`
	Timeout float64 `json:"timeout_seconds" default:"600" min:"1" max:"86400" doc:"The cell is interrupted then."`
}

func runCodeCell() tool {
	return onNotebook(spec{
		title:       "Run one cell",
		summary:     "runs one code cell of a notebook and saves its outputs in the file",
		description: "Runs one code cell: a file's on the VM, with outputs saved in the file; the tab's in its own kernel. It answers early with status running; the cell continues, and the same call waits on and saves the rest.",
	}, func(ctx context.Context, c *call, args runCellArgs) (*Run, error) {
		if c.inTab(args.Path) {
			return c.runInTab(ctx, args)
		}
		path, err := c.notebookPath(args.Path)
		if err != nil {
			return nil, err
		}
		r := &cellRun{c: c, args: args}
		x, notes, err := nbrun.RunCell(ctx, c.target.Client, c.cfg.CheckpointDir, nbrun.Spec{
			Path: path, Cells: args.Cell, CellTimeout: inSeconds(args.Timeout), Runtime: c.target.Name,
		}, nbrun.Options{Until: time.Now().Add(c.waitBudget()), Output: r.add, SaveDir: c.cfg.SaveDir})
		if x.Status == "" && err == nil {
			err = context.DeadlineExceeded
		}
		if x.Status == "" {
			return nil, err
		}
		return r.answer(ctx, x, notes, err)
	})
}

// cellRun is one call's run of a cell.
type cellRun struct {
	c       *call
	args    runCellArgs
	reading *reading // nil until the cell's first output
}

// add collects what the cell prints.
func (r *cellRun) add(_ nbrun.CellRecord, id string, events []contract.Event) {
	if len(events) == 0 {
		return
	}
	if r.reading == nil {
		r.reading = r.c.read(id, render.Options{From: events[0].Offset, New: events[0].Offset == 0})
	}
	for _, ev := range events {
		if ev.Offset >= r.reading.col.Next() { // after a form, the cell is read again from its start
			r.reading.col.Add(ev)
		}
	}
	if r.c.progress != nil {
		r.c.progress.show(r.reading.col.Newest())
	}
}

// answer is that of run_code_long, with another next step.
func (r *cellRun) answer(ctx context.Context, x contract.Execution, notes []string, err error) (*Run, error) {
	if r.reading == nil {
		r.reading = r.c.read(x.ExecutionID, render.Options{})
	}
	defer r.reading.col.Close()
	r.reading.exec = x
	r.c.checkKernel(x.KernelID)
	if err != nil && refusalCode(err) == "" && !unreachable(err) {
		return nil, err
	}
	run, problem := r.reading.finish(ctx, err)
	run.Notes = append(run.Notes, notes...)
	if again := sameCall("run_code_cell", r.args); strings.HasPrefix(run.NextCommand, "provide_input(") {
		run.NextCommand += ", then " + again
	} else if !contract.Status(run.Status).Finished() { // get_execution would not save its outputs
		run.NextCommand = again
	}
	switch {
	case problem == nil:
		return run, nil
	case problem.Code == string(contract.CodeNotFound):
		return run, withHintAbout(hint.Execution, problem, err)
	}
	return run, problem
}
