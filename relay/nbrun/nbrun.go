// Package nbrun runs the cells of a notebook on the VM, one execution a cell, and records on
// the laptop what ran, so that the run can go on after any failure: of the call, the relay,
// the tunnel, the executor, the kernel or the VM.
//
// One run is one job of the executor, whose steps are the cells: package jobs. The plan and the
// ticket of the job are on disk before the submit, in a file of package checkpoint. The job goes
// on to its end without this computer; a call follows it and writes outputs into the notebook.
// A cell has the status that the VM confirmed, and no other. The package must not know MCP, nor
// how outputs are shown.
//
// Start reading at Open (run.go) and Run.Advance (advance.go). record.go is the record on disk,
// plan.go which cells run, job.go submits and follows them, landing.go records how cells and jobs
// end, and acts on a new kernel, skip.go finds out which cells depend on which, and acts on edits of
// the notebook. outputs.go writes into the notebook, cell.go runs one cell.
package nbrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/jobs"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/shared/contract"
)

// MaxRetries bounds the retries of one cell.
const MaxRetries = contract.MaxJobAttempts - 1

// Errors of Open, Advance and RunCell, besides those of relay/notebook and relay/checkpoint.
var (
	ErrBusy       = errors.New("another call is running this notebook")
	ErrSpec       = errors.New("the arguments of the run do not fit")
	ErrConflict   = errors.New("the cell is running with another source")
	ErrCellLost   = errors.New("the cell was lost")
	ErrDamaged    = errors.New("the record of the notebook's run cannot be read")
	ErrNotPython  = errors.New("the notebook is not for Python")
	ErrOutputPath = errors.New("the file for the outputs exists already")
)

// ArgumentError is an ErrSpec about one argument.
type ArgumentError struct {
	Name    string // as run_notebook has it; commands have a flag for it
	Problem string
}

// Error names the argument as run_notebook has it.
func (e *ArgumentError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrSpec, e.Name, e.Problem) }

// Unwrap returns ErrSpec.
func (e *ArgumentError) Unwrap() error { return ErrSpec }

// wrong returns an ArgumentError.
func wrong(name, format string, args ...any) error {
	return &ArgumentError{name, fmt.Sprintf(format, args...)}
}

// OnError says what happens to the other cells after one failed.
type OnError string

// Values of OnError.
const (
	StopOnError    OnError = "stop" // none of them runs
	ContinueAfter  OnError = "continue"
	SkipDependants OnError = "skip_dependants" // those that name what it would have made are skipped
)

// OnNewKernel says what happens when the executor or the VM was replaced during the run, and no
// state was saved.
type OnNewKernel string

// Values of OnNewKernel.
const (
	StopOnNewKernel OnNewKernel = "stop"
	Rerun           OnNewKernel = "rerun" // from the first selected cell, once a call
)

// Spec is the requested run: the arguments of run_notebook. The zero value of each field but
// Path is its default.
type Spec struct {
	Path       string `json:"notebook_path"`
	OutputPath string `json:"output_path"` // a copy that gets the outputs, made when the run starts; empty: the notebook
	Unsaved    bool   `json:"unsaved"`     // outputs go nowhere
	Cells      string `json:"cells"`       // all, dirty, ids, 3-7, from:ID
	Parameters string `json:"parameters"`  // a JSON object

	OnError     OnError       `json:"on_error"`
	Retries     int           `json:"retries"`      // of a cell, after transient errors
	CellTimeout time.Duration `json:"cell_timeout"` // 0 means contract.DefaultTimeout

	Restart     bool        `json:"restart"` // restart the kernel before the first cell
	OnNewKernel OnNewKernel `json:"on_new_kernel"`
	StateName   string      `json:"state_name"` // where cells tagged save-state save the variables
	DryRun      bool        `json:"dry_run"`    // make the plan and submit nothing
	Runtime     string      `json:"runtime"`    // the runtime's name, for the record
}

// VM is the executor as a run uses it; *client.Client implements it.
type VM interface {
	kernelcall.VM
	jobs.VM
	CurrentKernel(ctx context.Context) (contract.Kernel, error)
	RestartKernel(ctx context.Context, kernelID string) (contract.Kernel, error)
}

// Options of Advance.
type Options struct {
	Until time.Time // when to return; cells go on on the VM
	// Progress is called when a cell starts or ends and when it prints. It may be nil.
	Progress func(Progress)
	// Output receives what a cell printed and displayed, in order. It may be nil.
	Output func(cell CellRecord, executionID string, events []contract.Event)
	// BehindInput lets the call wait on while another run waits for input before ours; without
	// it, the call returns with Outcome.Behind.
	BehindInput bool
	// States reaches the VM for saving the variables after cells tagged save-state. With nil, such
	// cells save nothing.
	States *client.Client
	// SaveDir is LOCAL_SAVE_DIR, whose folder notebooks gets whole texts that are too long for the
	// notebook; empty keeps only what fits into the notebook.
	SaveDir string
}

// Progress is how far a run is.
type Progress struct {
	Done, Total int    // cells
	Index       int    // of the current cell in the notebook
	Title       string // of the current cell: its title, or its first line
	LastLine    string // that it printed, not sanitised
}

// Outcome is the state of the run at the end of a call.
type Outcome struct {
	Status      Status
	Current     *CellRecord        // the cell that runs, is retried or waits; nil for none
	Plan        []PlannedCell      // of a dry run
	CanContinue bool               // the same call goes on with the run
	Prompt      *contract.Event    // what the current cell asks; with StatusWaitingForInput
	Behind      *contract.Behind   // the run that waits for input, while ours is queued behind it
	Answered    bool               // whether the VM answered a request of this call
	Execution   contract.Execution // the last one that was read, without events
	SavedFiles  []string           // names of whole texts, below Options.SaveDir
	Notes       []string
}

// PlannedCell is what a dry run says of a cell.
type PlannedCell struct {
	CellID string `json:"cell_id"`
	Index  int    `json:"index"`
	Title  string `json:"title,omitempty"`
	Run    bool   `json:"run"`           // it would run
	Why    string `json:"why,omitempty"` // why it would not run, or would run although it is clean
}

// Succeeded reports whether the run is finished, and nothing failed or was skipped.
func (r *RunRecord) Succeeded() bool { return r.Status == StatusSucceeded && r.unsuccessful() == nil }

// Counts returns how many cells of the run have which status.
func (r *RunRecord) Counts() map[CellStatus]int {
	counts := map[CellStatus]int{}
	for i := range r.Plan {
		counts[r.Plan[i].Status]++
	}
	return counts
}

// Seconds returns how long the last attempts at all cells took, without the time between them.
func (r *RunRecord) Seconds() (total float64) {
	for i := range r.Plan {
		total += r.Plan[i].Seconds()
	}
	return total
}

// Seconds returns how long the last attempt at a cell took.
func (c *CellRecord) Seconds() float64 {
	if c.Last == nil {
		return 0
	}
	return c.Last.Seconds
}

// Summary says in one line how the run ended: how many cells ended how, and how long they took.
func (r *RunRecord) Summary() string {
	var parts []string
	counts := r.Counts()
	for _, status := range []CellStatus{
		CellSucceeded, CellExpectedFailure, CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost, CellSkipped, CellRunning, CellNotRun,
	} {
		if n := counts[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Words(status)))
		}
	}
	return fmt.Sprintf("%s: %s; %s in %s", Words(r.Status), plain.Count(len(r.Plan), "cell"), cmp.Or(strings.Join(parts, ", "), "none ran"), progress.Seconds(r.Seconds()))
}

// Problem says what a person should know of a cell that did not succeed, or did not run; empty
// for other cells. It is not sanitised.
func (c *CellRecord) Problem() string {
	head := fmt.Sprintf("cell %d (id %s) %s", c.Index, c.Handle, Words(c.Status))
	switch {
	case c.Why != "":
		return head + ": " + c.Why
	case c.Status == CellTimedOut: // its exception is only the interrupt
		return head + " after " + progress.Seconds(c.Seconds())
	case c.Status.Failed() && c.Failure() != nil:
		return head + ": " + c.Failure().text()
	case c.Status.Failed() || c.Status == CellSkipped:
		return head
	}
	return ""
}

// Failure is why the last attempt did not succeed; nil for no reason.
func (c *CellRecord) Failure() *Failure {
	if c.Last == nil {
		return nil
	}
	return c.Last.Error
}

// text returns the exception, or else the executor's explanation.
func (f *Failure) text() string {
	text := cmp.Or(f.Reason, f.EValue)
	if f.EName != "" {
		text = strings.TrimSuffix(f.EName+": "+f.EValue, ": ")
	}
	return plain.Clip(text, 300)
}

// Words returns a status as a person reads it.
func Words[S ~string](status S) string { return strings.ReplaceAll(string(status), "_", " ") }
