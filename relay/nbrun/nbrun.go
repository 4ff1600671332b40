// Package nbrun runs the cells of a notebook on the VM, one execution a cell, and records on
// the laptop what ran, so that the run can go on after any failure: of the call, the relay,
// the tunnel, the executor, the kernel or the VM.
//
// A file of package checkpoint holds the plan, the cells that are in flight, and what ran
// before. Every request_id is on disk before its submit. A cell has the status that the VM
// confirmed, and no other. The package must not know MCP, nor how outputs are shown.
//
// Start reading at Open (this file) and Run.Advance (advance.go). record.go is the record on
// disk, plan.go which cells run, chain.go submits them, flight.go reads them, landing.go decides
// what follows from how a cell ended. resume.go finds what is on the VM, newkernel.go acts on
// a new kernel, changes.go on edits of the notebook. outputs.go writes into the notebook.
package nbrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/dataflow"
	"colabrelay/relay/output"
	"colabrelay/shared/contract"
)

// Bounds of a Spec.
const (
	MaxRetries     = 20
	MaxRetryBudget = 1000
	MaxRunTimeout  = 30 * 24 * time.Hour
)

// Errors of Open, Advance and RunCell, besides those of relay/notebook and relay/checkpoint.
var (
	ErrBusy       = errors.New("another call is running this notebook")
	ErrSpec       = errors.New("the arguments of the run do not fit")
	ErrChanged    = errors.New("the notebook was changed since its run began")
	ErrConflict   = errors.New("the cell is running with another source")
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

// Save says where outputs go.
type Save string

// Values of Save.
const (
	SaveInPlace Save = ""     // into the notebook
	SaveCopy    Save = "copy" // into a copy at Spec.OutputPath, made when the run starts
	SaveNone    Save = "none" // nowhere
)

// OnError says what happens to the other cells after one failed.
type OnError string

// Values of OnError.
const (
	SkipDependents OnError = "skip_dependents" // those that use what it would have made are skipped
	StopOnError    OnError = "stop"
	ContinueAfter  OnError = "continue"
)

// OnNewKernel says what happens when the kernel or the VM was replaced during the run.
type OnNewKernel string

// Values of OnNewKernel.
const (
	Rerun           OnNewKernel = "rerun" // from the first selected cell, or after the cell whose state can be restored
	StopOnNewKernel OnNewKernel = "stop"
)

// OnChange says what happens when the notebook's cells were edited during the run.
type OnChange string

// Values of OnChange.
const (
	ContinueChanged OnChange = "continue" // cells that have not started take the new source
	RefuseChanged   OnChange = "refuse"
	RestartChanged  OnChange = "restart" // from the first selected cell
)

// Spec is the requested run: the arguments of run_notebook. The zero value of each field but
// Path is its default, except of MaxRetries and RetryBudget; see Defaults.
type Spec struct {
	Path       string `json:"notebook_path"`
	Save       Save   `json:"save"`
	OutputPath string `json:"output_path"` // of SaveCopy
	Cells      string `json:"cells"`       // all, dirty, stale, ids, 3-7, from:ID
	Parameters string `json:"parameters"`  // a JSON object

	OnError     OnError `json:"on_error"`
	Force       string  `json:"force"`        // ids of cells that run whatever failed before, separated by commas
	MaxRetries  int     `json:"max_retries"`  // of one cell
	RetryBudget int     `json:"retry_budget"` // of the run
	RetryOn     string  `json:"retry_on"`     // further names and messages; "none" empties the list

	CellTimeout time.Duration `json:"cell_timeout"` // 0 means contract.DefaultTimeout
	RunTimeout  time.Duration `json:"run_timeout"`  // wall clock since the run began; 0 means none

	Restart     bool        `json:"restart"` // restart the kernel before the first cell
	OnNewKernel OnNewKernel `json:"on_new_kernel"`
	OnChange    OnChange    `json:"on_change"`
	StateName   string      `json:"state_name"` // where cells tagged save-state save the variables
	DryRun      bool        `json:"dry_run"`    // make the plan and submit nothing
	Runtime     string      `json:"runtime"`    // the runtime's name, for the record
}

// Defaults returns the Spec of a run without arguments.
func Defaults(path string) Spec {
	return Spec{
		Path: path, Cells: "all", OnError: SkipDependents, MaxRetries: 2, RetryBudget: 10,
		CellTimeout: contract.DefaultTimeout, OnNewKernel: Rerun, OnChange: ContinueChanged,
	}
}

// Executions are what the executor does with code.
type Executions interface {
	dataflow.VM
	SubmitTo(ctx context.Context, instanceID string, s contract.Submit) (contract.Execution, error)
	List(ctx context.Context, limit int) (contract.ExecutionList, error)
	CancelQueued(ctx context.Context, id string) (contract.Execution, error)
}

// Machine is what the executor says of itself.
type Machine interface {
	Probe(ctx context.Context) (contract.Probe, error)
	CurrentKernel(ctx context.Context) (contract.Kernel, error)
	RestartKernel(ctx context.Context, kernelID string) (contract.Kernel, error)
}

// VM is the executor as a run uses it; *client.Client implements it.
type VM interface {
	Executions
	Machine
}

// States saves and restores the kernel's variables; see KernelStates.
type States interface {
	// Save saves them as a new version of name, and returns the version, empty if the time
	// is over before it is complete: the same call then goes on.
	Save(ctx context.Context, name string, until time.Time) (version string, notes []string, err error)
	// Restore loads that version into the kernel. It reports false if the time is over
	// before that: the same call then goes on.
	Restore(ctx context.Context, name, version string, until time.Time) (done bool, notes []string, err error)
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
	// States keeps the variables of cells tagged save-state. With nil, such cells are only noted.
	States States
	// SaveText stores whole texts that are too long for the notebook; nil keeps only what fits
	// into the notebook.
	SaveText output.SaveText
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
	Counts      map[CellStatus]int // of the selected cells
	Current     *Current           // the cell that runs, is retried or waits; nil for none
	Failed      []CellRecord       // failed, timed_out, interrupted, kernel_died, lost; at most 20
	Plan        []PlannedCell      // of a dry run
	ReportPath  string             // the report as Markdown; the one in JSON is beside it
	CanContinue bool               // the same call goes on with the run
	RetryAt     *time.Time         // when the current cell is retried, if that is after the call
	Prompt      *Prompt            // what the current cell asks; with StatusWaitingForInput
	Behind      *contract.Behind   // the run that waits for input, while ours is queued behind it
	Answered    bool               // whether the VM answered a request of this call
	Execution   contract.Execution // the last one that was read, without events
	SavedFiles  []string           // names of whole texts, by Options.SaveText
	Notes       []string
}

// Current is the cell that runs.
type Current struct {
	CellID      string
	Index       int
	Attempt     int // counts from 1
	ExecutionID string
	Seconds     float64 // since it started; 0 while it is queued
}

// Prompt is what input() asks.
type Prompt struct {
	ExecutionID string
	Text        string // not sanitised
	Password    bool
	Offset      int64 // of its event
}

// PlannedCell is what a dry run says of a cell.
type PlannedCell struct {
	CellID   string
	Index    int
	Title    string
	Run      bool   // it would run
	Why      string // why it would not run, or would run although it is clean
	Warnings []string
}
