// Package chunked runs a loop on the VM batch by batch and keeps on the laptop how
// far it came, so that the loop goes on after anything in between has died: the
// call, the relay, the tunnel, the executor, the kernel, the VM.
//
// The kernel itself keeps what it has done (loop.py), the executor's log tells of
// each finished iteration by a marker, and a file of relay/checkpoint holds what
// was confirmed and which batch is under way. Nothing is taken for done that the
// VM did not confirm. The package must not know MCP, nor how outputs are shown.
//
// Start reading at Open, then Run.Advance; loop.py is what runs in the kernel.
package chunked

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/contract"
)

// Bounds of what is asked for.
const (
	MaxCodeBytes  = 512 << 10 // setup and loop together; quotes in it grow eightfold on the way
	MaxIterations = 1_000_000_000
)

// Errors of Open.
var (
	ErrNoName     = errors.New("a chunked run needs a name")
	ErrTooLarge   = errors.New("set-up and loop are over 512 KiB together")
	ErrChanged    = errors.New("not the run that is kept under this name")
	ErrDamaged    = errors.New("the checkpoint cannot be read")
	ErrNotChunked = errors.New("the checkpoint is no chunked run's")
)

// errSilent means that batches end well and tell nothing.
var errSilent = errors.New("two batches ended without one marker: the kernel's display publisher was replaced, or its messages get lost")

// OnChange says what happens to a run whose code or n is not what is kept.
type OnChange string

// Ways to deal with a change.
const (
	Refuse   OnChange = "refuse"
	Continue OnChange = "continue" // keep what is done, go on with the new code
	Restart  OnChange = "restart"  // begin at 0 again; also what runs a finished run again
)

// OnNewKernel says what happens in a kernel without the variables that iterations hand
// on, where they were not kept.
type OnNewKernel string

// Ways to go on in a new kernel.
const (
	NewKernelStop     OnNewKernel = ""         // stop, and say what is missing
	NewKernelContinue OnNewKernel = "continue" // go on with what the set-up makes; nothing is kept
	NewKernelRestart  OnNewKernel = "restart"  // begin at 0 again
)

// Spec is the run a caller wants.
type Spec struct {
	Name      string // of the checkpoint
	Setup     string // once in a kernel's life; may be empty
	Loop      string // body of: for i in range(N)
	N         int64
	BatchSize int64 // iterations of one execution, at most
	OnChange  OnChange
	OnNew     OnNewKernel
	Runtime   string // name of the runtime, for the record
}

// VM is the executor as a run sees it; *client.Client is one.
type VM interface {
	SubmitTo(ctx context.Context, instanceID string, s contract.Submit) (contract.Execution, error)
	Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error)
	List(ctx context.Context, limit int) (contract.ExecutionList, error)
	Interrupt(ctx context.Context, id string) (contract.Execution, error)
	InstanceID() string // of the VM that answered last
}

// Run is a chunked run that this process has to itself until Close.
type Run struct {
	dir       string
	spec      Spec
	state     *Record
	unlock    func()
	begun     bool   // the file holds this run
	abandoned *Batch // of the run that a restart replaced
	stale     bool   // what is kept is of a run that this one replaced
	notes     []note
	path      string
}

// Open finds the run of that name in dir, or begins one. Nothing is written yet.
func Open(dir string, s Spec) (*Run, error) {
	switch {
	case s.Name == "":
		return nil, ErrNoName
	case len(s.Setup)+len(s.Loop) > MaxCodeBytes:
		return nil, ErrTooLarge
	}
	r := &Run{dir: dir, spec: s, path: checkpoint.Path(dir, s.Name)}
	var err error
	if r.unlock, err = checkpoint.Lock(dir, s.Name); err != nil {
		return nil, err
	}
	if err := r.load(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// load reads what is kept and holds it against what is wanted.
func (r *Run) load() error {
	kept, err := Load(r.dir, r.spec.Name)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		r.state = newRecord(r.spec)
		return nil
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrNotChunked):
		return r.replace(err)
	case err != nil:
		return err
	}
	r.state, err = r.reconcile(kept)
	r.begun = r.state == kept
	return err
}

// replace begins afresh in place of a file that is no run, when that was asked
// for: the file is kept aside, never overwritten.
func (r *Run) replace(why error) error {
	if r.spec.OnChange != Restart {
		return why
	}
	word := "damaged"
	if errors.Is(why, ErrNotChunked) {
		word = "other"
	}
	aside := fmt.Sprintf("%s.%s-%s", r.path, word, time.Now().UTC().Format("20060102T150405.000"))
	if err := os.Rename(r.path, aside); err != nil {
		return fmt.Errorf("keeping the old checkpoint aside: %w", err)
	}
	r.note("what was kept under this name before is now in %s", aside)
	r.state = newRecord(r.spec)
	r.state.Restarted, r.stale = true, true
	return nil
}

// Close lets others work on the run.
func (r *Run) Close() { r.unlock() }

// Record is where the run stands. It must not be changed.
func (r *Run) Record() *Record { return r.state }

// Path is the run's file.
func (r *Run) Path() string { return r.path }

// note is something a call has to tell besides. Notes of one kind are told once,
// with their number, so that there are never more than there are kinds.
type note struct {
	format, text string
	more         int // of the same format
}

func (r *Run) note(format string, args ...any) {
	for i := range r.notes {
		if r.notes[i].format == format {
			r.notes[i].more++
			return
		}
	}
	r.notes = append(r.notes, note{format: format, text: fmt.Sprintf(format, args...)})
}

// told are the notes as they are shown.
func (r *Run) told() []string {
	var all []string
	for _, n := range r.notes {
		if n.more > 0 {
			n.text += fmt.Sprintf(" (and %d more of this kind)", n.more)
		}
		all = append(all, n.text)
	}
	return all
}

// save writes the state down, synced.
func (r *Run) save() error {
	r.state.UpdatedAt = time.Now().UTC()
	_, err := checkpoint.Save(r.dir, r.spec.Name, r.state)
	return err
}
