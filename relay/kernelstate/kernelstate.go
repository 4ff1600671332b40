// Package state keeps a kernel's variables on the laptop, in versions, and brings
// them back into a kernel: of the same VM or of the next one.
//
// What is pickled and how is decided by the Python beside this file, which runs in
// the kernel as an ordinary execution. The Go side must never unpickle, never look
// into the data, and never touch a version that is whole: a new one appears by one
// rename, and pending.go makes every step one that the next call can take up.
// A pickle runs code when it is loaded, so only files that this package wrote, and
// whose digest still holds, are sent to a VM.
//
// Start reading at Save and Restore, then save.py and write.py.
package kernelstate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// Bounds of a state.
const (
	DefaultKeep = 3
	MaxKeep     = 100
	// deadline of the execution that saves or loads, on the VM.
	deadline = 2 * time.Hour
	// resumable is how long after the last call a save or restore that was cut off is
	// taken up. Later the caller wants the variables of now, not of then.
	resumable = time.Hour
	// leastWait is the shortest wait worth a request.
	leastWait = 250 * time.Millisecond
)

// Errors that callers tell apart. What the executor refuses is a *contract.Error,
// what is wrong on the way a *client.Error, an execution that did not end well a
// *RunError; transfers have errors of their own.
var (
	ErrNotFound  = errors.New("no state is saved under this name")
	ErrNoVersion = errors.New("no such version of this state")
	ErrDamaged   = errors.New("the saved state is damaged")
	ErrBusy      = errors.New("another call is saving or restoring this name")
	ErrBadName   = errors.New("not a usable name for a state")
	ErrNoReport  = errors.New("the kernel gave no report of what it did")
	ErrNoSpace   = errors.New("the VM's disk has no room for the state")
)

// errHold ends a transfer whose call has to answer.
var errHold = errors.New("the call's time is over")

// RunError is an execution of ours that did not end well.
type RunError struct{ Execution contract.Execution }

func (e *RunError) Error() string {
	return fmt.Sprintf("the kernel's part ended as %s", e.Execution.Status)
}

// Options of Save and Restore.
type Options struct {
	Name    string // as the user gave it
	Runtime string // which runtime the call means, by its name
	Keep    int    // Save: versions kept, DefaultKeep when 0
	Version string // Restore: which one; the newest good one when empty
	// Until is when to stop waiting and answer. The same call goes on from there.
	Until time.Time
	// Report is told how far a transfer is; it must not block. It may be nil.
	Report func(transfer.Progress)

	run *run // Restore: what a Keeper kept for a run, in place of a state of the user's
}

// folder of what is kept under the name.
func (o Options) folder(dir string) string {
	root := statesFolder
	if o.run != nil {
		root = keptFolder
	}
	return filepath.Join(dir, root, filename.Unique(o.Name))
}

// Phase is what a save or restore is doing.
type Phase string

// Phases, in order. A save has collecting and fetching, a restore the others.
const (
	PhaseCollecting Phase = "collecting" // the kernel writes its variables to a file
	PhaseFetching   Phase = "fetching"   // the file comes to the laptop
	PhasePreparing  Phase = "preparing"  // the kernel makes room for the upload
	PhaseSending    Phase = "sending"    // the file goes to the VM
	PhaseLoading    Phase = "loading"    // the kernel reads it
	PhaseDone       Phase = "done"
)

// Progress is where a save or restore stands; both answer with it.
type Progress struct {
	Phase     Phase
	Queued    bool               // another run holds the kernel
	Execution contract.Execution // the last one of ours, without events
	At        At                 // what that one is at, where it takes long
	Transfer  transfer.Result    // the last transfer
	Warnings  []string
}

// At is the variable that the kernel is writing or loading; none where Of is 0.
type At struct {
	Variable string `json:"variable"`
	Number   int    `json:"number"` // counts from 1
	Of       int    `json:"of"`
}

// Done reports that nothing is left to do.
func (p Progress) Done() bool { return p.Phase == PhaseDone }

func (p *Progress) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// job is one call of Save or Restore: the folder of the name, locked.
type job struct {
	c       *client.Client
	o       Options
	folder  string
	resumed bool // it goes on where an earlier call stopped
	passed  bool // other code runs since the kernel did its part of what was taken up
}

// open locks the folder of the name below dir; done must be called.
func open(c *client.Client, dir string, o Options) (j *job, done func(), err error) {
	if o.Name == "" || len(o.Name) > 200 {
		return nil, nil, fmt.Errorf("%.40q: %w", o.Name, ErrBadName)
	}
	j = &job{c: c, o: o, folder: o.folder(dir)}
	if err := os.MkdirAll(j.folder, 0o700); err != nil {
		return nil, nil, fmt.Errorf("making the folder of state %q: %w", o.Name, err)
	}
	lock := flock.New(filepath.Join(j.folder, "lock"))
	got, err := lock.TryLock()
	if err != nil {
		return nil, nil, fmt.Errorf("locking state %q: %w", o.Name, err)
	}
	if !got {
		return nil, nil, fmt.Errorf("%q: %w", o.Name, ErrBusy)
	}
	return j, func() { _ = lock.Close() }, nil
}

// statesFolder holds the states that users saved, keptFolder what a Keeper keeps.
const (
	statesFolder = "state"
	keptFolder   = "kept"
)

// exists reports whether anything is kept under the name, so that asking for an
// unknown one leaves no folder behind.
func (o Options) exists(dir string) bool {
	_, err := os.Stat(o.folder(dir))
	return !errors.Is(err, fs.ErrNotExist)
}

// instance is the instance_id of the executor that answers now: the one last heard of
// may be gone, with a new VM at its address.
func (j *job) instance(ctx context.Context) (string, error) {
	_, err := j.c.Kernel(ctx)
	var refused *contract.Error
	if err != nil && !errors.As(err, &refused) {
		return "", err
	}
	return j.c.InstanceID(), nil
}

// left is the time until the call must answer.
func (j *job) left() time.Duration { return time.Until(j.o.Until) }

// held is ctx that ends when the call must answer, for a transfer.
func (j *job) held(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, j.o.Until, errHold)
}
