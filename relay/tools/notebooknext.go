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
		"parameters", a.Parameters, "on_error", text(a.OnError, "skip_dependents"), "force", a.Force,
		"max_retries", number(float64(a.MaxRetries), 2), "retry_budget", number(float64(a.RetryBudget), 10), "retry_on", a.RetryOn,
		"cell_timeout_seconds", number(a.CellTimeout, 600), "run_timeout_seconds", number(a.RunTimeout, 0),
		"restart", a.Restart, "on_new_kernel", text(a.OnNew, "rerun"), "on_change", text(a.OnChange, "continue"),
		"state_name", a.State, "runtime", a.Runtime)
}

// next returns the step after an answer.
func (r *NotebookRun) next(c *call, args runNotebookArgs, o nbrun.Outcome) string {
	switch {
	case args.DryRun || !r.CanContinue:
		return ""
	case o.Prompt != nil && r.password:
		return fmt.Sprintf("the cell asks for a password. %s Then call %s", hint.ForPassword(o.Prompt.ExecutionID), args.again())
	case o.Prompt != nil:
		return fmt.Sprintf("%s, then %s", command("provide_input", "execution_id", o.Prompt.ExecutionID, "text", "…", "runtime", args.Runtime), args.again())
	case o.Behind != nil:
		return fmt.Sprintf("the cell waits for %s. %s Then call %s", hint.Asking(o.Behind), hint.ForPrompt(o.Behind).Model, args.again())
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
		p := problemOf(err).copy()
		p.Message = fmt.Sprintf("the VM could not be reached (%s); what has run is recorded, and cells that were sent continue on the VM", p.Message)
		return p
	default:
		return c.notebookProblem(err)
	}
	switch o.Status {
	case nbrun.StatusPlanned, nbrun.StatusRunning, nbrun.StatusWaitingForInput, nbrun.StatusSucceeded:
		return nil
	}
	return &Problem{Code: string(o.Status), Message: r.failure(o), Hint: runHints[o.Status]}
}

// failure says why a run did not succeed.
func (r *NotebookRun) failure(o nbrun.Outcome) string {
	text := runMessages[o.Status] + r.countsText()
	if len(r.Failed) > 0 {
		f := r.Failed[0]
		text += fmt.Sprintf("; the first is cell %s (index %d)", f.CellID, f.Index)
		if f.Error != "" {
			text += ": " + f.Error
		}
	}
	return text
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
	nbrun.StatusFailed:      "the run is finished, but cells failed or were skipped",
	nbrun.StatusInterrupted: "the run was stopped by an interrupt or a restart of the kernel",
	nbrun.StatusTimedOut:    "the run was stopped: run_timeout_seconds are over",
	nbrun.StatusKernelDied:  "the run was stopped: one cell ended the kernel twice",
	nbrun.StatusNewKernel:   "the kernel is new and lacks the variables of the cells that ran; on_new_kernel is stop",
}

// runHints says what to do about each.
var runHints = map[nbrun.Status]string{
	nbrun.StatusFailed:      "Look at failed_cells, correct the cells with update_cell, then call run_notebook with cells=\"dirty\".",
	nbrun.StatusInterrupted: "Ask the user if the run should go on; next_command continues it.",
	nbrun.StatusTimedOut:    "Call run_notebook with cells=\"dirty\" to run the rest, with a longer run_timeout_seconds.",
	nbrun.StatusKernelDied:  "The cell probably needs more memory than the VM has: make it smaller with update_cell, then call run_notebook with cells=\"dirty\".",
	nbrun.StatusNewKernel:   "Call run_notebook with on_new_kernel=\"rerun\" to run all selected cells again, or restore_kernel_state first.",
}
