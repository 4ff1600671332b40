package tools

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// Notes about runs in a tab.
const (
	ownKernelNote = "it ran in the notebook's own kernel in Colab: the executor's kernel has other variables"
	noTimeoutNote = "timeout_seconds has no effect here: Colab's page cannot interrupt a cell, only the person at the page can"
	noOutputNote  = "the page answered without outputs. If the cell should have shown something, ask the user to look at the tab: a notebook from GitHub waits there for a click on \"Run anyway\""
)

// notRun says that the page answered without running the cell.
var notRun = &Problem{
	Code: codeNotRun, Message: "Colab's page answered without running the cell",
	Hint: "Ask the user to look at the tab and to click what it asks for: \"Run anyway\" (notebooks from GitHub), signing in, or connecting to a runtime. Then call again.",
}

// usualTimeout is the default of timeout_seconds.
const usualTimeout = 600

// runInTab runs a cell in the notebook's own kernel.
func (c *call) runInTab(ctx context.Context, args runCellArgs) (*Run, *Problem) {
	n, problem := c.readTab(ctx)
	if problem != nil {
		return nil, problem
	}
	at, id, err := n.find(args.Cell)
	if err != nil {
		return nil, c.tabProblem(err)
	}
	if kind := n.doc.Cell(at).Type; kind != notebook.Code {
		return nil, &Problem{Code: codeBadRequest, Message: fmt.Sprintf("bad arguments: %s is a %s cell", cellName(at, plain.Clip(args.Cell, maxTagRunes)), plain.Clip(string(kind), 40)), Hint: "Only code cells can be run. get_cells shows the type of each cell."}
	}
	r := &tabCellRun{c: c, args: args, n: n, at: at, id: id}
	r.run, _ = c.tabRuns.begin(n.tab, n.cells[at])
	return r.wait(ctx)
}

// tabCellRun is one call's run of a cell in the tab.
type tabCellRun struct {
	c    *call
	args runCellArgs
	n    *tabNotebook
	at   int
	id   string // the page's
	run  tabRun
}

// wait waits for the cell's end as long as this call may.
func (r *tabCellRun) wait(ctx context.Context) (*Run, *Problem) {
	if r.c.progress != nil {
		r.c.progress.waitFor("running in Colab's tab, no output yet")
	}
	waiting, done := context.WithTimeout(ctx, r.c.waitBudget())
	defer done()
	result, err := r.n.tab.Run(waiting, r.id)
	if errors.Is(err, page.ErrRunning) {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, cancelledProblem
		}
		return r.running(), nil
	}
	r.c.tabRuns.end(r.n.tab, r.id)
	if err != nil {
		return nil, r.c.tabProblem(err)
	}
	return r.ended(ctx, result)
}

// running is the answer about a cell that has not ended.
func (r *tabCellRun) running() *Run {
	run := r.answer(contract.Execution{Status: contract.StatusRunning, StartedAt: &r.run.started}, render.View{})
	run.NextCommand = command("run_code_cell", "cellId", r.args.Cell)
	return run
}

// ended is the answer about a cell that has ended.
func (r *tabCellRun) ended(ctx context.Context, result page.Result) (*Run, *Problem) {
	var notes []string
	if isEmptyList(result.Outputs) && strings.TrimSpace(r.n.cells[r.at].Source) != "" { // a kernel runs no empty code
		cells, err := r.n.tab.Cells(ctx, r.at, r.at, false)
		same := err == nil && len(cells) == 1 && cells[0].ID == r.id
		switch {
		case same && cells[0].ExecutionCount == nil:
			return nil, notRun
		case same && countOf(cells[0]) == r.run.count:
			notes = []string{noOutputNote}
		}
	}
	now := time.Now()
	exec := contract.Execution{Status: contract.StatusSucceeded, StartedAt: &r.run.started, FinishedAt: &now}
	outputs := tabOutputs{}
	col := render.New(render.Options{Dir: r.c.outputDir("tab", "tab-"+rand.Text()), Holding: &r.c.held, New: true, Unpaged: true, Limit: viewLimit(r.c.cfg.TextLimit)})
	defer col.Close()
	outputs.addTo(col, result.Outputs)
	view := col.View(ctx, outputs.fetch)
	r.c.pictures = view.Pictures
	if view.Error != nil {
		exec.Status, exec.Error = contract.StatusFailed, &contract.ExecutionError{EName: view.Error.EName, EValue: view.Error.EValue}
		if exec.Error.EName == "KeyboardInterrupt" { // by the person at the page
			exec.Status = contract.StatusInterrupted
		}
	}
	run, problem := r.answer(exec, view), runProblem(exec)
	if problem != nil {
		problem.Traceback = view.Error.Traceback
	}
	if run.Truncated {
		run.NextCommand = command("get_cells", "cellId", r.args.Cell)
	}
	run.Notes = append(run.Notes, notes...)
	return run, problem
}

// answer makes the answer; its run has no id and no offsets, because no executor has it.
func (r *tabCellRun) answer(exec contract.Execution, view render.View) *Run {
	run := newRun(exec, view)
	run.NextOffset, run.limit, run.inTab = 0, r.c.cfg.TextLimit, true
	run.Notes = append(run.Notes, ownKernelNote)
	if r.args.Timeout != usualTimeout {
		run.Notes = append(run.Notes, noTimeoutNote)
	}
	return run
}

// isEmptyList reports whether a list of outputs has no elements.
func isEmptyList(list json.RawMessage) bool {
	empty := true
	eachItem(bytes.TrimSpace(list), func([]byte) { empty = false })
	return empty
}
