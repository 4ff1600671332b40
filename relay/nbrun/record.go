package nbrun

import (
	"time"

	"colabrelay/relay/dataflow"
	"colabrelay/shared/contract"
)

const (
	kind    = "notebook"
	version = 1
)

// Bounds of a record.
const (
	maxAttempts = 50   // of one cell; beyond it the oldest are dropped
	maxName     = 200  // bytes of an exception's name
	maxValue    = 2000 // bytes of its message
	maxBecause  = 20   // causes of one skipped cell
	maxLacking  = 100  // names of one cause; beyond it they are dropped
	shedBytes   = 100  // of each text of a failure in a record that would be too large
	maxNotes    = 100
	maxHistory  = 20_000 // cells of which the last run is kept
	maxRuns     = 20_000 // of one kernel
	maxSingles  = 64
	maxKernelID = 128 // bytes; an executor's answer with a longer one is refused
	maxTitle    = 80  // characters
)

// Status is the status of a run.
type Status string

// Statuses of a run.
const (
	StatusPlanned         Status = "planned" // a dry run
	StatusRunning         Status = "running"
	StatusWaitingForInput Status = "waiting_for_input" // a cell calls input()
	StatusSucceeded       Status = "succeeded"         // finished, and nothing failed or was skipped
	StatusFailed          Status = "failed"            // finished, but some cells failed or were skipped
	StatusInterrupted     Status = "interrupted"       // a cell was interrupted, or the kernel restarted, from outside
	StatusTimedOut        Status = "timed_out"         // run_timeout_seconds are over
	StatusKernelDied      Status = "kernel_died"       // one cell ended two kernels
	StatusNewKernel       Status = "new_kernel"        // the kernel is new, and the run must not rerun
)

// Finished reports whether the next call with the same arguments starts a new run.
func (s Status) Finished() bool {
	switch s {
	case StatusSucceeded, StatusFailed, StatusTimedOut, StatusKernelDied, StatusPlanned:
		return true
	}
	return false
}

// CellStatus is the status of a cell in a run.
type CellStatus string

// Statuses of a cell.
const (
	CellNotRun          CellStatus = "not_run"
	CellQueued          CellStatus = "queued"
	CellRunning         CellStatus = "running"
	CellSucceeded       CellStatus = "succeeded"
	CellFailed          CellStatus = "failed"
	CellExpectedFailure CellStatus = "expected_failure" // it is tagged raises-exception
	CellTimedOut        CellStatus = "timed_out"
	CellInterrupted     CellStatus = "interrupted"
	CellKernelDied      CellStatus = "kernel_died"
	CellLost            CellStatus = "lost"    // the executor or the VM ended while it ran
	CellSkipped         CellStatus = "skipped" // because of other cells
)

// Record is the content of a run's file. It also says, of every cell that was run through this
// computer, how it ended, and in which order cells ran in the present kernel.
type Record struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	Path    string `json:"path"`        // of the notebook, links resolved
	Work    string `json:"output_path"` // the file that the last run's outputs go to; empty for none
	Runtime string `json:"runtime"`     // that was used last

	Run     RunRecord                 `json:"run"`
	Singles []*Single                 `json:"singles"` // of RunCell: not yet ended, or its end is not reported yet
	History map[string]LastRun        `json:"history"` // by handle
	Life    Life                      `json:"life"`
	Facts   map[string]dataflow.Facts `json:"facts"` // by digest of the code that is sent
	Code    map[string]string         `json:"code"`  // that was sent and has no facts yet, by its digest
	Chains  Chains                    `json:"chains"`

	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`

	codeBytes int                       // of Code
	passing   map[string]dataflow.Facts // like Facts, for this call only
}

// RunRecord is the last run of the whole notebook.
type RunRecord struct {
	ID     string `json:"run_id"` // empty: there was none
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
	// KernelID is the kernel whose variables the cells that have run made.
	KernelID string `json:"kernel_id"`

	Copied  bool         `json:"copied,omitempty"`  // the copy of SaveCopy was, or is about to be, made
	Created bool         `json:"created,omitempty"` // the copy was certainly made
	Planned bool         `json:"planned"`           // Plan is complete
	Plan    []CellRecord `json:"plan"`              // the selected cells, in the notebook's order
	View    string       `json:"view"`              // digest of the notebook's code when it was last compared
	Flights []*Flight    `json:"flights"`           // submitted, in order; their ends or outputs are not recorded yet

	Retries int        `json:"retries"`  // so far
	RetryAt *time.Time `json:"retry_at"` // of the first cell of the plan that has not run
	// Undecided: a cell failed, and which cells depend on it has not been determined.
	Undecided bool `json:"undecided,omitempty"`
	// Stopping is the status that the run gets when what is in flight has ended; empty if it goes on.
	Stopping Status `json:"stopping,omitempty"`
	Restart  string `json:"restart,omitempty"` // the kernel that Spec.Restart ends, or doneRestart

	Saving    string      `json:"saving,omitempty"` // the cell after which the state is being saved
	Saved     *SavedState `json:"saved,omitempty"`
	Restoring bool        `json:"restoring,omitempty"` // Saved is being loaded into a new kernel

	Notes      []string   `json:"notes"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Confirms   bool       `json:"confirms,omitempty"` // Delivered is called when its end is answered

	places map[string]int // of the cells in Plan, by handle; see cell
}

// SavedState is a version of Spec.StateName, saved after a cell.
type SavedState struct {
	Cell    string `json:"cell_id"`
	Version string `json:"version"`
}

// CellRecord is one selected cell.
type CellRecord struct {
	Handle         string     `json:"cell_id"`
	Index          int        `json:"index"` // in the notebook, from 0
	Title          string     `json:"title"` // or its first line; at most 80 characters
	Source         string     `json:"source_sha256"`
	Sent           string     `json:"sent_sha256"` // of what was last sent, with its parameters
	Status         CellStatus `json:"status"`
	Why            string     `json:"why,omitempty"` // why it is not to be run, or what else is to be said
	Attempts       []Attempt  `json:"attempts"`      // the last maxAttempts
	SkippedBecause []Because  `json:"skipped_because,omitempty"`

	Stopped bool `json:"stopped,omitempty"` // Why is the end of the run, not the notebook's wish
	Retries int  `json:"retries,omitempty"` // in this kernel
	Kills   int  `json:"kills,omitempty"`   // kernels that ended while it ran
}

// Attempt is one execution of a cell that was submitted and may have run.
type Attempt struct {
	RequestID   string          `json:"request_id"`
	ExecutionID string          `json:"execution_id"`
	KernelID    string          `json:"kernel_id"`
	InstanceID  string          `json:"instance_id"`
	Status      contract.Status `json:"status"` // empty until the VM confirmed its end
	Sent        time.Time       `json:"sent"`
	Started     *time.Time      `json:"started"`
	Seconds     float64         `json:"seconds"`
	Error       *Failure        `json:"error"`
}

// Failure is why an attempt did not succeed. Its texts come from the kernel or the executor
// and are bounded, but not sanitised.
type Failure struct {
	EName  string `json:"ename"` // empty unless Python raised
	EValue string `json:"evalue"`
	Reason string `json:"reason,omitempty"` // the executor's explanation
}

// Because says why a cell was skipped: another cell would have made names that it uses.
type Because struct {
	Cell  string   `json:"cell_id"`
	Names []string `json:"names"` // empty if they can't be determined
}

// Flight is an execution that was, or is about to be, submitted, and whose end and outputs are
// not recorded yet. With the code of Sent it makes the same submit again.
type Flight struct {
	Handle         string    `json:"cell_id"`
	RequestID      string    `json:"request_id"`
	InstanceID     string    `json:"instance_id"`
	ExecutionID    string    `json:"execution_id"` // empty until the submit was answered
	AfterRequestID string    `json:"after_request_id,omitempty"`
	AfterAny       bool      `json:"after_any,omitempty"`
	Source         string    `json:"source_sha256"`
	Sent           string    `json:"sent_sha256"`
	Timeout        float64   `json:"timeout_seconds"`
	SubmittedAt    time.Time `json:"submitted_at"`
	Withdrawn      bool      `json:"withdrawn,omitempty"` // we cancelled it
	Ended          bool      `json:"ended"`               // its end is recorded; its outputs are not in the file yet
}

// Single is a cell that RunCell runs.
type Single struct {
	Flight
	Index   int        `json:"index"`
	Title   string     `json:"title"`
	Started *time.Time `json:"started"`
	Save    Save       `json:"save"`
}

// LastRun is how a cell ended the last time it ran through this computer.
type LastRun struct {
	KernelID string     `json:"kernel_id"`
	Source   string     `json:"source_sha256"`
	Status   CellStatus `json:"status"`
}

// Life is what ran in the present kernel.
type Life struct {
	KernelID   string    `json:"kernel_id"`
	InstanceID string    `json:"instance_id"`
	Runs       []CellRun `json:"runs"` // in order; the last maxRuns
	// The last execution, which the next one follows, so that it runs in no other kernel.
	LastRequestID   string `json:"last_request_id,omitempty"`
	LastExecutionID string `json:"last_execution_id,omitempty"`
}

// isUnused reports whether nothing ran in the kernel.
func (l *Life) isUnused() bool { return len(l.Runs) == 0 && l.LastRequestID == "" }

// CellRun is one cell that ran.
type CellRun struct {
	Handle string     `json:"cell_id"`
	Source string     `json:"source_sha256"`
	Sent   string     `json:"sent_sha256"`
	Status CellStatus `json:"status"`
}

// Chains says whether an executor knows Submit.AfterRequestID.
type Chains struct {
	InstanceID string `json:"instance_id"`
	Known      bool   `json:"known"`
}

// State is the state of a cell for readers of the notebook.
type State string

// States of a cell.
const (
	NeverRun State = "never_run"
	Clean    State = "clean"
	Dirty    State = "dirty" // it has not succeeded in this kernel, or with another source
	Failed   State = "failed"
	Running  State = "running" // or queued
)
