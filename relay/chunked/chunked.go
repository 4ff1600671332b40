// Package chunked runs a loop on the VM in batches and records on the laptop how many
// iterations are done, so that the loop can continue after any failure: of the call, the
// relay, the tunnel, the executor, the kernel or the VM.
//
// The kernel counts the iterations that it has run. Each finished iteration appears as a
// marker among the batch's events. A file of package checkpoint records the iterations that
// were confirmed and the batch that is running. An iteration that the VM did not confirm
// never counts as done. The package must not know MCP, nor how outputs are shown.
//
// Start reading at Open (this file) and Run.Advance (batchloop.go). batch.go submits and
// reads one batch, batchcode.go makes its code, marker.go applies its markers. record.go is the
// record on disk, reconcile.go compares it with the requested run. keptvariables.go copies
// the variables that iterations pass on. recovery.go restores them into a new kernel and says
// at which iteration the run continues there.
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

// Bounds of a request.
const (
	MaxCodeBytes  = 512 << 10 // setup and loop together; in a request each quote takes up to eight bytes
	MaxIterations = 1_000_000_000
)

// Errors of Open.
var (
	ErrNoName     = errors.New("a chunked run needs a name")
	ErrTooLarge   = errors.New("setup_code and loop_code are over 512 KiB together")
	ErrChanged    = errors.New("the checkpoint under this name belongs to a different run")
	ErrDamaged    = errors.New("the checkpoint cannot be read")
	ErrNotChunked = errors.New("the checkpoint does not belong to a chunked run")
)

// OnChange says what to do when the code or N differs from the recorded run.
type OnChange string

// Values of OnChange.
const (
	Refuse   OnChange = "refuse"
	Continue OnChange = "continue" // keep the completed iterations and continue with the new code
	Restart  OnChange = "restart"  // start at 0; this also runs a finished run again
)

// OnNewKernel says what to do in a new kernel when the variables that iterations pass on
// were not kept.
type OnNewKernel string

// Values of OnNewKernel.
const (
	NewKernelStop     OnNewKernel = ""         // stop and report what is missing
	NewKernelContinue OnNewKernel = "continue" // continue with the variables that the setup code makes; nothing is kept
	NewKernelRestart  OnNewKernel = "restart"  // start at 0
)

// Spec is the requested run.
type Spec struct {
	Name        string // of the checkpoint
	Setup       string // runs once in each kernel; may be empty
	Loop        string // the body of: for i in range(N)
	N           int64
	BatchSize   int64 // iterations of one execution, at most
	OnChange    OnChange
	OnNewKernel OnNewKernel
	Runtime     string // the runtime's name, for the record
}

// VM is the executor as a run uses it; *client.Client implements it.
type VM interface {
	SubmitTo(ctx context.Context, instanceID string, s contract.Submit) (contract.Execution, error)
	Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error)
	List(ctx context.Context, limit int) (contract.ExecutionList, error)
	Interrupt(ctx context.Context, id string) (contract.Execution, error)
	InstanceID() string // of the VM that answered last
}

// Run is a chunked run that belongs to this process alone until Close.
type Run struct {
	dir       string
	spec      Spec
	record    *Record
	unlock    func()
	onDisk    bool   // the file holds this run's record
	abandoned *Batch // a running batch of the run that this one replaced
	replaced  bool   // the kept variables belong to a run that this one replaced
	notes     []note
	path      string
}

// Open reads the run of that name in dir, or starts a new one. It writes nothing.
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

// load reads the record and compares it with the requested run.
func (r *Run) load() error {
	recorded, err := Load(r.dir, r.spec.Name)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		r.record = newRecord(r.spec)
		return nil
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrNotChunked):
		return r.moveAside(err)
	case err != nil:
		return err
	}
	r.record, err = r.reconcile(recorded)
	r.onDisk = r.record == recorded
	return err
}

// moveAside renames a file that contains no readable run, and starts a new run, if Restart
// allows it.
func (r *Run) moveAside(why error) error {
	if r.spec.OnChange != Restart {
		return why
	}
	suffix := "damaged"
	if errors.Is(why, ErrNotChunked) {
		suffix = "other"
	}
	aside := fmt.Sprintf("%s.%s-%s", r.path, suffix, time.Now().UTC().Format("20060102T150405.000"))
	if err := os.Rename(r.path, aside); err != nil {
		return fmt.Errorf("renaming the old checkpoint: %w", err)
	}
	r.addNote("the file that had this name before is now %s", aside)
	r.record = newRecord(r.spec)
	r.record.Restarted, r.replaced = true, true
	return nil
}

// Close lets other calls work on the run.
func (r *Run) Close() { r.unlock() }

// Record returns the run's record. The caller must not change it.
func (r *Run) Record() *Record { return r.record }

// Path is the run's file.
func (r *Run) Path() string { return r.path }

// note is a remark for the answer. Notes with the same format are counted, and only the
// first is shown.
type note struct {
	format, text string
	more         int
}

func (r *Run) addNote(format string, args ...any) {
	for i := range r.notes {
		if r.notes[i].format == format {
			r.notes[i].more++
			return
		}
	}
	r.notes = append(r.notes, note{format: format, text: fmt.Sprintf(format, args...)})
}

// noteTexts returns the notes as they are shown.
func (r *Run) noteTexts() []string {
	var texts []string
	for _, n := range r.notes {
		if n.more > 0 {
			n.text += fmt.Sprintf(" (and %d more of this kind)", n.more)
		}
		texts = append(texts, n.text)
	}
	return texts
}

// save writes the record to disk and syncs it.
func (r *Run) save() error {
	r.record.UpdatedAt = time.Now().UTC()
	_, err := checkpoint.Save(r.dir, r.spec.Name, r.record)
	return err
}
