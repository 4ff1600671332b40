package nbrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/jobs"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

const (
	Kind    = "notebook" // of the checkpoint
	version = 4
)

// Bounds of a record.
const (
	maxName    = 200  // bytes of an exception's name
	maxValue   = 1000 // bytes of its message
	maxLacking = 10   // names of one cause; beyond it they are dropped
	maxNotes   = 100
	maxRan     = 20_000 // cells of which the last run is kept
	// maxCells bounds the runs of single cells whose ends nobody asked for. The VM has at most 16
	// unfinished jobs of a caller and runs them in order, so the oldest of 64 has ended.
	maxCells = 64
	maxTitle = 80 // characters
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
	StatusKernelDied      Status = "kernel_died"       // the kernel died under a cell
	StatusNewKernel       Status = "new_kernel"        // the kernel is new, and the run must not rerun
)

// Finished reports whether the next call with the same arguments starts a new run.
func (s Status) Finished() bool {
	switch s {
	case StatusSucceeded, StatusFailed, StatusKernelDied, StatusPlanned:
		return true
	}
	return false
}

// CellStatus is the status of a cell in a run.
type CellStatus string

// Statuses of a cell.
const (
	CellNotRun          CellStatus = "not_run"
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

// Record is the content of a notebook's file. It also says, of every cell that was run through
// this computer, how it ended.
type Record struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	Path    string `json:"path"`    // of the notebook, links resolved
	Runtime string `json:"runtime"` // that was used last

	Run   RunRecord    `json:"run"`   // the last one of the notebook
	Cells []*RunRecord `json:"cells"` // runs of RunCell, of one cell each, whose ends were not answered; oldest first

	KernelID string             `json:"kernel_id"` // the present kernel
	Ran      map[string]CellRun `json:"ran"`       // the last run of each cell, by handle
	Runs     int                `json:"runs"`      // of cells, counted

	UpdatedAt time.Time `json:"updated_at"`
}

// RunRecord is a run of the notebook, or of one cell.
type RunRecord struct {
	ID     string `json:"run_id"` // empty: there was none
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
	// KernelID is the kernel whose variables the cells that have run made, and before that the one
	// that Spec.Restart ends.
	KernelID string `json:"kernel_id"`

	Copied  bool             `json:"copied,omitempty"` // the copy at Spec.OutputPath was, or is about to be, made
	Planned bool             `json:"planned"`          // Plan is complete
	Plan    []CellRecord     `json:"plan"`             // the selected cells, in the notebook's order
	View    string           `json:"view"`             // digest of the notebook's code when it was last compared
	Job     *JobRecord       `json:"job,omitempty"`    // that runs the cells; nil before, between and after jobs; with StatusNewKernel that of a VM that was replaced before its end was read
	Facts   map[string]Facts `json:"facts,omitempty"`  // of skip_dependants, by digest of the code that is sent

	Saving    int         `json:"saving,omitempty"` // key of the cell after which the state is being saved
	Saved     *SavedState `json:"saved,omitempty"`
	Restoring bool        `json:"restoring,omitempty"` // Saved is being loaded into a new kernel

	Notes      []string   `json:"notes"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// SavedState is a version of Spec.StateName, saved after a cell.
type SavedState struct {
	Cell    int    `json:"cell"` // its key
	Version string `json:"version"`
}

// CellRecord is one selected cell.
type CellRecord struct {
	Key      int        `json:"key"` // in the run, from 1; it stays when the handle changes
	Handle   string     `json:"cell_id"`
	Index    int        `json:"index"` // in the notebook, from 0
	Title    string     `json:"title"` // or its first line; at most 80 characters
	Source   string     `json:"source_sha256"`
	Sent     string     `json:"sent_sha256"` // of what was last sent, with its parameters
	Status   CellStatus `json:"status"`
	Why      string     `json:"why,omitempty"` // why it is not to be run, or what else is to be said
	Attempts int        `json:"attempts"`      // executions in this kernel
	Last     *Attempt   `json:"last"`          // nil: none
}

// Attempt is one execution of a cell.
type Attempt struct {
	ExecutionID string          `json:"execution_id"`
	KernelID    string          `json:"kernel_id"`
	Status      contract.Status `json:"status"` // empty until the VM confirmed its end
	Seconds     float64         `json:"seconds"`
	Error       *Failure        `json:"error"`
}

// JobRecord is the job that runs the cells.
type JobRecord struct {
	jobs.Ticket
	// Steps are those of the job at the revision At, and Proposed those after the edit that is about
	// to be sent.
	Steps    []Step `json:"steps"`
	At       int    `json:"at"`
	Proposed []Step `json:"proposed,omitempty"`
	Written  int    `json:"written"` // entries whose outputs are in the notebook
}

// Step is the code of a cell, as a step of a job runs it.
type Step struct {
	ID     string `json:"step_id"`
	Cell   int    `json:"cell"`          // its key
	Source string `json:"source_sha256"` // as in the notebook
	Sent   string `json:"sent_sha256"`   // with its parameters
}

// CellRun is how a cell ended the last time it ran through this computer.
type CellRun struct {
	Source   string     `json:"source_sha256"`
	Sent     string     `json:"sent_sha256"`
	KernelID string     `json:"kernel_id"`
	Status   CellStatus `json:"status"`
	Number   int        `json:"number"` // the order in which cells ran
}

// Failure is why an attempt did not succeed. Its texts come from the kernel or the executor
// and are bounded, but not sanitised.
type Failure struct {
	EName  string `json:"ename"` // empty unless Python raised
	EValue string `json:"evalue"`
	Reason string `json:"reason,omitempty"` // the executor's explanation
}

// State is the state of a cell for readers of the notebook.
type State string

// States of a cell.
const (
	NeverRun State = "never_run"
	Clean    State = "clean"
	Dirty    State = "dirty" // it has not succeeded in this kernel, or with another source
	Failed   State = "failed"
	Queued   State = "queued" // it is sent, and has not begun
	Running  State = "running"
)

// Name is the name of the checkpoint of the notebook at this path, links resolved: a part of the
// file's name, for people, and a hash of the path.
func Name(realPath string) string {
	stem := strings.TrimSuffix(filepath.Base(realPath), filepath.Ext(realPath))
	return "notebook " + shorten(stem, 60) + " " + hash(realPath)[:12]
}

// Load reads the record of the notebook at path. It returns checkpoint.ErrNotFound if no cell
// of it was run through this computer, or ErrDamaged.
func Load(dir, path string) (*Record, error) {
	file, err := notebook.OpenFile(path, dir)
	if err != nil {
		return nil, err
	}
	return loadRecord(dir, file.Path())
}

func loadRecord(dir, realPath string) (*Record, error) {
	name := Name(realPath)
	entry, err := checkpoint.Load(dir, name, nil)
	if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrTooLarge) {
		return nil, err
	}
	r, err := Read(entry)
	if err != nil || r.Path != realPath {
		return nil, fmt.Errorf("%w: %q", ErrDamaged, checkpoint.Path(dir, name))
	}
	return r, nil
}

// Read returns the record in a checkpoint, or ErrDamaged.
func Read(e checkpoint.Entry) (*Record, error) {
	r := Record{Ran: map[string]CellRun{}}
	if json.Unmarshal(e.Data, &r) != nil || !r.isConsistent() {
		return nil, ErrDamaged
	}
	for _, run := range append(r.Cells, &r.Run) {
		if j := run.Job; j != nil { // what was not written into the notebook is read again
			if j.Offset = 0; j.Written < j.Entry {
				j.Entry, j.Execution, j.Read = j.Written, "", ""
			}
		}
	}
	return &r, nil
}

// isConsistent reports whether the record has what its readers take for granted.
func (r *Record) isConsistent() bool {
	damaged := func(one *RunRecord) bool {
		return one == nil || len(one.Plan) != 1 || one.Job == nil || !one.Job.isConsistent()
	}
	return r.Kind == Kind && r.Version == version && r.Ran != nil && (r.Run.Job == nil || r.Run.Job.isConsistent()) &&
		!slices.ContainsFunc(r.Cells, damaged)
}

// isConsistent reports whether the job can be sent, or read.
func (j *JobRecord) isConsistent() bool { return j.IsConsistent() && j.Written >= 0 }

// prune bounds what grows from run to run.
func (r *Record) prune() {
	if len(r.Ran) > maxRan {
		maps.DeleteFunc(r.Ran, func(handle string, _ CellRun) bool { return r.Run.cell(handle) == nil })
	}
}

// summary says in a few words how far a run is.
func (r *RunRecord) summary() string {
	return fmt.Sprintf("%d of %s were done", r.done(), plain.Count(len(r.Plan), "cell"))
}

// done counts the cells that are not to be run any more.
func (r *RunRecord) done() (n int) {
	for i := range r.Plan {
		if c := &r.Plan[i]; !c.pending() && c.Status != CellLost {
			n++
		}
	}
	return n
}

// unsuccessful returns the last cell that failed or was skipped; nil for none.
func (r *RunRecord) unsuccessful() (last *CellRecord) {
	for i := range r.Plan {
		if s := r.Plan[i].Status; s.Failed() || s == CellSkipped {
			last = &r.Plan[i]
		}
	}
	return last
}

// cell returns the record of the planned cell that has a handle; nil for none.
func (r *RunRecord) cell(handle string) *CellRecord {
	return r.first(func(c CellRecord) bool { return c.Handle == handle })
}

// keyed returns the record of the planned cell with a key; nil for none.
func (r *RunRecord) keyed(key int) *CellRecord {
	return r.first(func(c CellRecord) bool { return c.Key == key })
}

func (r *RunRecord) first(is func(CellRecord) bool) *CellRecord {
	if i := slices.IndexFunc(r.Plan, is); i >= 0 {
		return &r.Plan[i]
	}
	return nil
}

// handle is that of the planned cell with a key.
func (r *RunRecord) handle(key int) string {
	if c := r.keyed(key); c != nil {
		return c.Handle
	}
	return ""
}

// plan adds a cell to the plan.
func (r *RunRecord) plan(c *cell) {
	r.Plan = append(r.Plan, CellRecord{
		Key: len(r.Plan) + 1, Handle: c.handle, Index: c.index, Title: c.title, Source: c.source, Sent: c.sent, Status: CellNotRun,
	})
}

// pending reports whether the cell is to be run.
func (c *CellRecord) pending() bool {
	return (c.Status == CellNotRun || c.Status == CellRunning) && c.Why == ""
}

// Failed reports whether a cell ended, and not as the notebook wants.
func (s CellStatus) Failed() bool {
	switch s {
	case CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost:
		return true
	}
	return false
}
