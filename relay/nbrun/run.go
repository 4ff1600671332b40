package nbrun

import (
	"context"
	"errors"

	"colabrelay/relay/checkpoint"
)

// Run is the run of a notebook that belongs to this process alone until Close.
type Run struct {
	dir    string
	spec   Spec
	record *Record
	unlock func()
}

// Open opens the run of s.Path whose record is in dir: the unfinished one with the same
// arguments, or else a new one. It writes nothing. ErrBusy means that another call has it.
func Open(dir string, s Spec) (*Run, error) { return nil, errors.New("not yet") }

// Advance runs cells until the run ends, or the time is over. An error means that a request
// failed, or that a file could not be written. In any case another call continues the run.
func (r *Run) Advance(ctx context.Context, vm VM, o Options) (Outcome, error) {
	return Outcome{}, errors.New("not yet")
}

// Close lets other calls run the notebook.
func (r *Run) Close() { r.unlock() }

// Record returns the run's record. The caller must not change it.
func (r *Run) Record() *Record { return r.record }

// Path is the run's file.
func (r *Run) Path() string { return checkpoint.Path(r.dir, Name(r.record.Path)) }

// RunCell runs one cell of the notebook at path, in one execution and without retries, or
// attaches to it while it runs with the same source. ErrConflict means that it runs with
// another one, ErrBusy that a run of the whole notebook is being continued by another call.
func RunCell(ctx context.Context, vm VM, dir string, c CellSpec, o Options) (Outcome, error) {
	return Outcome{}, errors.New("not yet")
}

// CellSpec says which cell RunCell runs.
type CellSpec struct {
	Path    string // of the notebook
	Handle  string
	Save    Save    // SaveInPlace or SaveNone
	Timeout float64 // seconds; 0 means contract.DefaultTimeout
	Runtime string
}

// Load reads the record of the notebook at path. It returns checkpoint.ErrNotFound if no cell
// of it was run through this computer, or ErrDamaged.
func Load(dir, path string) (*Record, error) { return nil, errors.New("not yet") }

// State returns the state of a cell with this handle and source, as far as the record knows.
func (r *Record) State(handle, source string) State { return NeverRun }

// Name is the name of the checkpoint of the notebook at this path, links resolved: a part of the
// file's name, for people, and a hash of the path.
func Name(realPath string) string { return realPath }
