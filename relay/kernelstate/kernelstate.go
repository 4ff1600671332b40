// Package kernelstate keeps a kernel's variables on the laptop, in versions, and restores
// them into a kernel of the same VM or of another one.
//
// Python code that runs in the kernel as an ordinary execution decides what is pickled and
// how. The Go side must never unpickle or inspect the data, and must never change a
// complete version: a new version appears by one rename. A pickle runs code when it is
// loaded, so only files that this package wrote, and whose digest is still correct, are sent
// to a VM.
//
// Start reading at Save (save.go) and Restore (restore.go). Both are a job (this file),
// which runs operations in the kernel and records each step before it takes it, so that the next
// call can resume the work (pending.go). What is on disk, and what a kernel reports: versions.go and
// manifest.go. Keeper moves the variables of chunked runs with the same machinery.
package kernelstate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// Bounds of a state.
const (
	DefaultKeep = 3
	// deadline of the execution that saves or loads, on the VM.
	deadline = 2 * time.Hour
	// resumable is how long after its last call an unfinished save or restore may be
	// resumed. After that, the caller wants the current variables, not the old ones.
	resumable = 15 * time.Minute
)

// Errors that callers distinguish. A refusal of the executor is a *contract.Error, a failed
// connection a *client.Error. Packages kernelcall, for operations in the kernel, and transfer
// have their own errors.
var (
	ErrNotFound  = errors.New("no state is saved under this name")
	ErrNoVersion = errors.New("no such version of this state")
	ErrDamaged   = errors.New("the saved state is damaged")
	ErrBusy      = errors.New("another call is saving or restoring this name")
)

// errCallTimeOver ends a transfer when the call must answer.
var errCallTimeOver = errors.New("the call's time is over")

// Options of Save and Restore.
type Options struct {
	Name    string // as the user gave it
	Runtime string // the name of the runtime
	Keep    int    // Save: how many versions to keep, DefaultKeep when 0
	Version string // Restore: a version's name or number; empty for the newest good one
	// Until is when to stop waiting and return. The same call then resumes the work.
	Until time.Time
	// Report receives the progress of a transfer. It must not block and may be nil.
	Report func(transfer.Progress)

	kept bool // set by a Keeper: the variables belong to a chunked run, not to the user's states
}

// folder is where the versions of o.Name are.
func (o Options) folder(dir string) string {
	root := statesFolder
	if o.kept {
		root = keptFolder
	}
	return filepath.Join(dir, root, filename.Unique(o.Name))
}

// Phase is what a save or restore is doing.
type Phase string

// Phases, in order. A save has collecting and fetching, a restore the others.
const (
	PhaseCollecting Phase = "collecting" // the kernel writes its variables to a file
	PhaseFetching   Phase = "fetching"   // the relay downloads the file
	PhasePreparing  Phase = "preparing"  // the kernel makes a folder for the upload
	PhaseSending    Phase = "sending"    // the relay uploads the file
	PhaseLoading    Phase = "loading"    // the kernel reads the file
	PhaseDone       Phase = "done"
)

// Progress is how far a save or restore is.
type Progress struct {
	Phase     Phase
	Queued    bool               // the operation waits because the kernel runs other code
	Execution contract.Execution // the last operation in the kernel, without events
	At        At                 // the variable that it works on, if it takes long
	Transfer  transfer.Result    // the last transfer
	Warnings  []string
}

// At is the variable that the kernel is writing or loading; Of is 0 if there is no such variable.
type At struct {
	Variable string `json:"variable"`
	Number   int    `json:"number"` // counts from 1
	Of       int    `json:"of"`
}

// Done reports whether the work is finished.
func (p Progress) Done() bool { return p.Phase == PhaseDone }

func (p *Progress) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// job is one call of Save or Restore. It holds the lock of the name's folder.
type job struct {
	c       *client.Client
	o       Options
	folder  string
	resumed bool // the call resumes the work of an earlier one
}

// open locks the folder of o.Name below dir. The caller must call unlock.
func open(c *client.Client, dir string, o Options) (j *job, unlock func(), err error) {
	j = &job{c: c, o: o, folder: o.folder(dir)}
	if err := os.MkdirAll(j.folder, 0o700); err != nil {
		return nil, nil, fmt.Errorf("creating the folder of state %q: %w", o.Name, err)
	}
	unlock, err = checkpoint.LockFile(filepath.Join(j.folder, "lock"))
	switch {
	case errors.Is(err, checkpoint.ErrBusy):
		return nil, nil, fmt.Errorf("%q: %w", o.Name, ErrBusy)
	case err != nil:
		return nil, nil, fmt.Errorf("locking state %q: %w", o.Name, err)
	}
	return j, unlock, nil
}

// inJob calls do with the folder of o.Name locked. It calls do again if what the call resumed
// no longer exists on the VM.
func inJob[T any](c *client.Client, dir string, o Options, do func(*job) (T, error)) (T, error) {
	j, unlock, err := open(c, dir, o)
	if err != nil {
		return *new(T), err
	}
	defer unlock()
	result, err := do(j)
	if j.shouldRestart(err) {
		return do(j)
	}
	return result, err
}

// statesFolder contains the states that users saved, keptFolder the variables that Keepers
// keep.
const (
	statesFolder = "state"
	keptFolder   = "kept"
)

// exists reports whether o.Name has a folder. A restore checks this first, because open
// would create the folder of an unknown name.
func (o Options) exists(dir string) bool {
	_, err := os.Stat(o.folder(dir))
	return !errors.Is(err, fs.ErrNotExist)
}

// instance returns the instance_id of the executor that answers now. It makes a request,
// because a new VM may have replaced the one that answered last.
func (j *job) instance(ctx context.Context) (string, error) {
	_, err := j.c.Kernel(ctx)
	var refused *contract.Error
	if err != nil && !errors.As(err, &refused) {
		return "", err
	}
	return j.c.InstanceID(), nil
}

// untilDue returns a context for a transfer. It ends when the call must return.
func (j *job) untilDue(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, j.o.Until, errCallTimeOver)
}

// Keeper keeps copies of the variables that the iterations of one chunked run pass on. They
// are not among the user's saved states: a newer version replaces the older one, and the caller
// deletes them when the run ends. The kernel makes the files and loads them; a Keeper only moves
// them.
type Keeper struct {
	c             *client.Client
	dir           string
	name, runtime string
}

// NewKeeper returns the Keeper of the run whose checkpoint in dir has that name.
func NewKeeper(c *client.Client, dir, name, runtime string) *Keeper {
	return &Keeper{c: c, dir: dir, name: name, runtime: runtime}
}

// ErrGone: the VM has deleted the file. The kernel does that with copies of chunked runs when it has made newer ones.
var ErrGone = errors.New("the file that the kernel wrote no longer exists on the VM")

// KeptFile is a copy on the VM's disk, as the kernel reported it.
type KeptFile struct {
	Path     string
	Bytes    int64
	SHA256   string
	KernelID string
	Until    time.Time // when to stop waiting
}

func (k *Keeper) options(until time.Time) Options {
	return Options{Name: k.name, Runtime: k.runtime, Until: until, kept: true}
}

// Fetch makes a version of a file that the kernel has written. It returns an empty name if the
// time is over before that. It does not delete older versions; DropOthers does.
func (k *Keeper) Fetch(ctx context.Context, f KeptFile) (version string, err error) {
	j, unlock, err := open(k.c, k.dir, k.options(f.Until))
	if err != nil {
		return "", err
	}
	defer unlock()
	k.removeOrphans()
	report := saved{Path: f.Path, Manifest: Contents{Pickler: "kept", Bytes: f.Bytes, SHA256: f.SHA256}}
	if err := report.check(); err != nil {
		return "", err
	}
	all, err := versions(j.folder)
	if err != nil {
		return "", err
	}
	if err := j.removeIncoming(); err != nil {
		return "", err
	}
	p := j.newPending(PhaseFetching, j.c.InstanceID())
	m := j.manifestOf(p, contract.Execution{KernelID: f.KernelID}, report.Manifest)
	m.Version = nextVersion(all, p.Started)
	p.Remote, p.Manifest = f.Path, &m
	s := Saved{Path: filepath.Join(j.folder, m.Version)}
	defer j.removePending(savingFile)
	if err := j.download(ctx, &p, &s); err != nil || !s.Done() {
		return "", err
	}
	return m.Version, nil
}

// Place uploads a version to the VM and returns its path there. It returns an empty path if the
// time is over before that; another call resumes the upload.
func (k *Keeper) Place(ctx context.Context, version string, until time.Time) (path string, err error) {
	o := k.options(until)
	o.Version = version
	if !o.exists(k.dir) {
		return "", fmt.Errorf("%q: %w", o.Name, ErrNotFound)
	}
	return inJob(k.c, k.dir, o, func(j *job) (string, error) {
		r, p, err := j.restore(ctx)
		if err != nil || r.Phase != PhaseLoading {
			return "", err
		}
		j.removePending(restoringFile)
		return p.Remote, nil
	})
}

// DropOthers deletes all versions except one. With an empty name it deletes all of them.
func (k *Keeper) DropOthers(version string) error {
	folder := k.options(time.Time{}).folder(k.dir)
	all, err := versions(folder)
	for _, v := range all {
		if v != version {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, v)))
		}
	}
	return err
}

// DropAll deletes everything that is kept of the run.
func (k *Keeper) DropAll() error {
	o := k.options(time.Time{})
	if !o.exists(k.dir) {
		return nil
	}
	j, unlock, err := open(k.c, k.dir, o)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(j.folder); err != nil {
		return fmt.Errorf("deleting the kept variables of %q: %w", k.name, err)
	}
	return nil
}

// removeOrphans deletes what is kept of runs whose checkpoint file was deleted.
func (k *Keeper) removeOrphans() {
	entries, _ := os.ReadDir(filepath.Join(k.dir, keptFolder))
	for _, e := range entries {
		file := e.Name() + filepath.Ext(checkpoint.Path("", "x"))
		if _, err := os.Stat(filepath.Join(k.dir, file)); errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(filepath.Join(k.dir, keptFolder, e.Name()))
		}
	}
}
