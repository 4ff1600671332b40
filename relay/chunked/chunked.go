// Package chunked runs a loop on the VM and records on the laptop how many iterations are done,
// so that the loop can continue after any failure: of the call, the relay, the tunnel, the
// executor, the kernel or the VM.
//
// A run is one job of the executor: a step that prepares the kernel, and rounds of iterations,
// which go on without any call. The kernel counts the iterations that it has run and decides
// what may run: it finds out which variables iterations pass on, and whether they still are what
// the run left. Markers among the outputs report that. A call reads them into a file of package
// checkpoint. An iteration that the VM did not confirm never counts as done. The package must not
// know MCP, nor how outputs are shown.
//
// Start reading at Open (this file) and Run.Advance (advance.go), which makes the job.
// follow.go reads it, marker.go applies its markers. record.go is the record on disk. copies.go
// has the copies of variables from which a new kernel continues.
package chunked

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/jobs"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// Bounds of a request.
const (
	MaxCodeBytes  = 512 << 10 // setup and loop together; in a request each quote takes up to eight bytes
	MaxIterations = 1_000_000_000
)

// Errors of Open.
var (
	ErrNoLoop     = errors.New("there is no chunked run of this name: a new one needs loop_code and n_iterations")
	ErrTooLarge   = errors.New("setup_code and loop_code are over 512 KiB together")
	ErrChanged    = errors.New("the call differs from the run that was recorded under this name")
	ErrDamaged    = errors.New("the checkpoint cannot be read")
	ErrNotChunked = errors.New("the checkpoint does not belong to a chunked run")
	ErrAnswer     = errors.New("on_stop does not answer what the run asks")
)

// OnChange says what to do when the code or N differs from the recorded run.
type OnChange string

// Values of OnChange.
const (
	Refuse   OnChange = "refuse"
	Continue OnChange = "continue" // keep the completed iterations and continue with the new code
	Restart  OnChange = "restart"  // start at 0; this also runs a finished run again
)

// OnStop answers a run that stopped and asks. It has no effect on any other run.
type OnStop string

// Values of OnStop, and what they answer.
const (
	Ask      OnStop = ""
	Accept   OnStop = "accept"   // variables_changed: go on with the values that they have now
	Restore  OnStop = "restore"  // variables_changed, iteration_incomplete: go back to the last copy
	Again    OnStop = "again"    // iteration_incomplete: run it again with what it has changed
	Skip     OnStop = "skip"     // iteration_incomplete: count it as done
	GoOnLost OnStop = "continue" // variables_lost: go on with what the setup code makes
)

// answers are the values that answer a status.
var answers = map[Status][]OnStop{
	StatusVariablesChanged: {Accept, Restore},
	StatusIncomplete:       {Again, Skip, Restore},
	StatusVariablesLost:    {GoOnLost},
}

// Spec is the requested run. An empty Loop, an N of 0 and a BatchSize of 0 mean those of the
// recorded run.
type Spec struct {
	Name        string // of the checkpoint
	Setup       string // runs once in each kernel; may be empty
	Loop        string // the body of: for i in range(N)
	N           int64
	BatchSize   int64 // iterations of one round, at most
	Independent bool  // the caller's word that no iteration needs what another one left
	OnChange    OnChange
	OnStop      OnStop
	Runtime     string // the runtime's name, for the record
}

// DefaultBatchSize is how many iterations a round has at most, unless the caller says otherwise.
const DefaultBatchSize = 1000

// VM is the executor as a run uses it; *client.Client implements it.
type VM interface {
	jobs.VM
	List(ctx context.Context, limit int) (contract.ExecutionList, error)
}

// Run is a chunked run that belongs to this process alone until Close.
type Run struct {
	dir    string
	spec   Spec
	record *Record
	unlock func()
	saved  time.Time // when the file last got this run's record; zero if it does not have it
	noted  []string  // formats of the notes
	notes  []string
}

// Open reads the run of that name in dir, or starts a new one. It writes nothing.
func Open(dir string, s Spec) (*Run, error) {
	if len(s.Setup)+len(s.Loop) > MaxCodeBytes {
		return nil, ErrTooLarge
	}
	r := &Run{dir: dir, spec: s}
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
		return r.fresh()
	case r.spec.OnChange == Restart && (errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotChunked)):
		return r.moveAside(err)
	case err != nil:
		return err
	}
	r.spec.complete(recorded)
	// A run that asks nothing ignores an answer: the same call may be repeated until it has finished.
	fit, given := answers[recorded.Status], r.spec.OnStop
	if given != Ask && fit != nil && !slices.Contains(fit, given) && r.spec.OnChange != Restart {
		return fmt.Errorf("%q: %w: it stopped as %s, which is answered by one of %q", r.spec.Name, ErrAnswer, recorded.Status, fit)
	}
	if r.record, err = r.reconcile(recorded); r.record == recorded {
		r.saved = recorded.UpdatedAt
	}
	return err
}

// fresh starts a new run.
func (r *Run) fresh() error {
	if r.spec.Loop == "" || r.spec.N == 0 {
		return fmt.Errorf("%q: %w", r.spec.Name, ErrNoLoop)
	}
	r.spec.BatchSize = cmp.Or(r.spec.BatchSize, DefaultBatchSize)
	r.record = newRecord(r.spec)
	return nil
}

// complete takes from the record what the caller did not repeat.
func (s *Spec) complete(r *Record) {
	if s.Loop == "" {
		s.Loop, s.Independent = r.Loop, s.Independent || r.Independent
		s.Setup = cmp.Or(s.Setup, r.Setup)
	}
	s.N, s.BatchSize = cmp.Or(s.N, r.N), cmp.Or(s.BatchSize, r.BatchSize)
}

// moveAside renames a file that contains no readable run, and starts a new run.
func (r *Run) moveAside(why error) error {
	if err := r.fresh(); err != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	aside, err := keep.Aside(r.Path())
	if err != nil {
		return err
	}
	r.addNote("the file that had this name before is now %s", aside)
	r.record.Restarted = true
	return nil
}

// reconcile returns the record to continue with: the recorded one, adapted to the requested
// run, or a new one.
func (r *Run) reconcile(recorded *Record) (*Record, error) {
	changes := changed(recorded, r.spec)
	// Each further call with the same arguments would start a run again that Restart has started.
	begun := recorded.Restarted && recorded.Status == StatusRunning
	if r.spec.OnChange == Restart && (len(changes) > 0 || !begun) {
		fresh := newRecord(r.spec)
		fresh.Restarted, fresh.Abandoned, fresh.Replaces = true, recorded.Job, recorded.Key
		return fresh, nil
	}
	recorded.BatchSize, recorded.Independent = r.spec.BatchSize, r.spec.Independent
	if len(changes) == 0 {
		return recorded, nil
	}
	// The code of a run without completed iterations may change: nothing is lost.
	unstarted := recorded.Done == 0 && (recorded.Job == nil || !recorded.Job.Accepted)
	if r.spec.OnChange != Continue && !unstarted {
		return nil, fmt.Errorf("%q: %s changed after %d of %d iterations: %w",
			r.spec.Name, strings.Join(changes, " and "), recorded.Done, recorded.N, ErrChanged)
	}
	if recorded.Done > r.spec.N {
		r.addNote("%d iterations were done; those from %d on no longer count, and their values were dropped", recorded.Done, r.spec.N)
	}
	// What carried variables had is the new code's to continue with, so it stays.
	recorded.Setup, recorded.Loop, recorded.N = r.spec.Setup, r.spec.Loop, r.spec.N
	recorded.Status, recorded.Ending, recorded.Superseded = StatusRunning, false, true
	return recorded, nil
}

// changed names the arguments that differ from the recorded run.
func changed(recorded *Record, s Spec) (names []string) {
	if recorded.Setup != s.Setup {
		names = append(names, "setup_code")
	}
	if recorded.Loop != s.Loop {
		names = append(names, "loop_code")
	}
	if recorded.N != s.N {
		names = append(names, "n_iterations")
	}
	return names
}

// Close lets other calls work on the run.
func (r *Run) Close() { r.unlock() }

// Record returns the run's record. The caller must not change it.
func (r *Run) Record() *Record { return r.record }

// Path is the run's file.
func (r *Run) Path() string { return checkpoint.Path(r.dir, r.spec.Name) }

// addNote adds a remark for the answer. Of those of one kind the first is shown.
func (r *Run) addNote(format string, args ...any) {
	const more = " (and more of this kind)"
	if i := slices.Index(r.noted, format); i < 0 {
		r.noted, r.notes = append(r.noted, format), append(r.notes, fmt.Sprintf(format, args...))
	} else if !strings.HasSuffix(r.notes[i], more) {
		r.notes[i] += more
	}
}

// save writes the record to disk and syncs it.
func (r *Run) save() error {
	r.record.UpdatedAt = time.Now().UTC()
	_, err := checkpoint.Save(r.dir, r.spec.Name, r.record)
	if err == nil {
		r.saved = r.record.UpdatedAt
	}
	return err
}
