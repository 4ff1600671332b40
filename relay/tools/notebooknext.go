package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"colabrelay/relay/hint"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
)

// again is the call that continues the run: the same one, with the arguments that are not their
// defaults.
func (a runNotebookArgs) again() string {
	number := func(n, usual float64) any {
		if n == usual {
			return ""
		}
		return n
	}
	text := func(s, usual string) string {
		if s == usual {
			return ""
		}
		return s
	}
	return command("run_notebook", "notebook_path", a.Path, "output_path", a.Output, "cells", text(a.Cells, "all"),
		"parameters", a.Parameters, "on_error", text(a.OnError, "stop"), "retries", number(float64(a.Retries), 0),
		"cell_timeout_seconds", number(a.CellTimeout, 600), "restart", a.Restart, "on_new_kernel", text(a.OnNew, "stop"),
		"state_name", a.State, "runtime_name", a.Runtime)
}

// next returns the step after an answer.
func (r *NotebookRun) next(c *call, args runNotebookArgs, o nbrun.Outcome) string {
	switch {
	case args.DryRun || !r.CanContinue:
		return ""
	case o.Prompt != nil && r.password:
		return fmt.Sprintf("the cell asks for a password. %s Then call %s", hint.ForPassword(o.Execution.ExecutionID), args.again())
	case o.Prompt != nil:
		return fmt.Sprintf("%s, then %s", command("provide_input", "execution_id", o.Execution.ExecutionID, "text", "…", "runtime_name", args.Runtime), args.again())
	case o.Behind != nil:
		return fmt.Sprintf("the cell waits for %s. %s Then call %s", hint.Asking(o.Behind), hint.ForPrompt(o.Behind).Model, args.again())
	}
	if o.Status == nbrun.StatusNewKernel {
		args.OnNew = string(nbrun.Rerun)
	}
	return args.again()
}

// problem returns the error of the answer; nil if the run succeeded or goes on.
func (r *NotebookRun) problem(c *call, o nbrun.Outcome, err error) *Problem {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && !unreachable(err) && o.Answered:
		r.Notes = append(r.Notes, "the VM did not answer the last request before this call's time was over")
		return nil
	case unreachable(err):
		return unread(err, "if the executor ended, the next call says what ran")
	default:
		return c.notebookProblem(err)
	}
	switch o.Status {
	case nbrun.StatusPlanned, nbrun.StatusRunning, nbrun.StatusWaitingForInput, nbrun.StatusSucceeded:
		return nil
	}
	p := &Problem{Code: string(o.Status), Message: runMessages[o.Status], Hint: runHints[o.Status]}
	if o.Status == nbrun.StatusFailed {
		p.Message = r.failedText()
	}
	if r.Counts[string(nbrun.CellTimedOut)] > 0 {
		p.Hint = "Allow the cell more time with cell_timeout_seconds, or with the tag timeout=N (seconds). " + p.Hint
	}
	return p
}

// failedText says how far a run went in which cells failed.
func (r *NotebookRun) failedText() string {
	left, skipped := r.Counts[string(nbrun.CellNotRun)], r.Counts[string(nbrun.CellSkipped)]
	switch {
	case left > 0:
		return fmt.Sprintf("cells failed, and %s did not run", plain.Count(left, "cell"))
	case skipped > 0:
		return "the run went on to its end; cells failed, and cells that need them were skipped"
	}
	return "the run went on to its end, but cells failed"
}

// countsText is the counts as prose, in brackets.
func (r *NotebookRun) countsText() string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(r.Counts)) {
		all = append(all, fmt.Sprintf("%d %s", r.Counts[status], status))
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// runMessages says what each bad status means.
var runMessages = map[nbrun.Status]string{
	nbrun.StatusInterrupted: "the run was stopped by an interrupt",
	nbrun.StatusKernelDied:  "the run was stopped: the kernel died under a cell",
	nbrun.StatusNewKernel:   "the kernel is new and lacks the variables of the cells that ran; on_new_kernel is stop",
}

// runHints says what to do about each.
var runHints = map[nbrun.Status]string{
	nbrun.StatusFailed:      "Correct the cells that failed with update_cell, then call run_notebook with cells=\"dirty\".",
	nbrun.StatusInterrupted: "Ask the user if the run should go on; the same call continues it.",
	nbrun.StatusKernelDied:  "If memory ran out, have the cell need less (update_cell). Then call run_notebook with cells=\"dirty\".",
	nbrun.StatusNewKernel:   "Call run_notebook with on_new_kernel=\"rerun\" to run all selected cells again, also those that have run.",
}
