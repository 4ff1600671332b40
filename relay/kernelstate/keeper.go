package kernelstate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// keepDeadline of the kernel's part of keeping, on the VM: a __reduce__ that never
// ends must not hold up the run.
const keepDeadline = time.Minute

// Keeper keeps, for one chunked run, the variables that its iterations hand on. What it
// keeps is no state of the user's: it lies apart, newer takes the place of older, and it
// goes when the run has ended.
type Keeper struct {
	c             *client.Client
	dir           string
	name, runtime string
}

// NewKeeper makes the Keeper of the run with that checkpoint name below dir.
func NewKeeper(c *client.Client, dir, name, runtime string) *Keeper {
	return &Keeper{c: c, dir: dir, name: name, runtime: runtime}
}

// run is the chunked run that variables are of, and the iteration they belong to.
type run struct {
	key    string
	done   int64
	absent []string // names that must not be there
}

// KeepRequest is what to keep of a run.
type KeepRequest struct {
	Run        string        // its key in the kernel
	Names      []string      // what iterations hand on
	LastSHA256 string        // Kept.SHA256 of the last time
	MaxBytes   int64         // of all together
	MaxBusy    time.Duration // how long the kernel may be busy with it
	Until      time.Time     // when to give up
	// MayFetch is asked, once the size is known, whether it may be fetched.
	MayFetch func(bytes int64) bool
}

// KeepResult is what came of it: exactly one of Missing, Slow, Late, Unfit, Unchanged, Unkept
// and Version says so.
type KeepResult struct {
	Done    int64    // the iteration that the variables belong to
	Version string   // a new version is on this computer
	SHA256  string   // of its data
	Absent  []string // names that were not there
	Bytes   int64

	Missing    bool       // the kernel lacks this run's variables
	TooSlow    bool       // it would have kept the kernel busy for longer than For
	TimedOut   bool       // it was given up at Until
	NotFetched bool       // Fits said no
	Unchanged  bool       // the version of last time has it all
	Unkept     []Omission // what can't be kept; then nothing is
}

// keeping is what the keep operation reports.
type keeping struct {
	saved
	Missing, Slow, Unchanged bool
	Unkept                   []Omission
	Absent                   []string
	Done                     int64
}

func (k *Keeper) options(until time.Time, r *run) Options {
	return Options{Name: k.name, Runtime: k.runtime, Until: until, run: r}
}

// Keep keeps the variables as they are now. The version of before stays until Only.
func (k *Keeper) Keep(ctx context.Context, o KeepRequest) (KeepResult, error) {
	j, done, err := open(k.c, k.dir, k.options(o.Until, &run{key: o.Run}))
	if err != nil {
		return KeepResult{}, err
	}
	defer done()
	k.removeOrphans()
	told, e, err := j.keep(ctx, o)
	if err != nil || told == nil {
		return KeepResult{TimedOut: err == nil}, err
	}
	kept := KeepResult{Done: told.Done, Absent: told.Absent, Missing: told.Missing, TooSlow: told.Slow, Unchanged: told.Unchanged, Unkept: told.Unkept}
	if kept.Missing || kept.TooSlow || kept.Unchanged || len(kept.Unkept) > 0 {
		return kept, nil
	}
	if err := told.saved.check(); err != nil {
		return kept, err
	}
	defer j.removeRemote(ctx, told.Path)
	kept.Bytes, kept.SHA256 = told.Manifest.Bytes, told.Manifest.SHA256
	if kept.NotFetched = !o.MayFetch(kept.Bytes); kept.NotFetched {
		return kept, nil
	}
	kept.Version, err = j.fetchKept(ctx, told.saved, e)
	kept.TimedOut = err == nil && kept.Version == ""
	return kept, err
}

// keep has the kernel do its part. What it has not begun in time is taken back.
func (j *job) keep(ctx context.Context, o KeepRequest) (*keeping, contract.Execution, error) {
	var p Progress
	j.o.Until = o.Until
	work := step{RequestID: rand.Text(), Deadline: keepDeadline}
	code := j.cell(keepTitle, "keep", o.Run, o.Names, o.LastSHA256, o.MaxBytes, o.MaxBusy.Seconds())
	report, err := j.run(ctx, &work, code, &p, func() error { return nil })
	if err == nil && report == nil {
		_, err = j.c.Interrupt(ctx, work.ExecutionID)
		return nil, p.Execution, err
	}
	if err != nil {
		return nil, p.Execution, err
	}
	var told keeping
	return &told, p.Execution, decode(report, &told)
}

// fetchKept brings the file to the laptop as a version; its name is empty when the time
// was over before.
func (j *job) fetchKept(ctx context.Context, told saved, e contract.Execution) (string, error) {
	all, err := versions(j.folder)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(filepath.Join(j.folder, incoming)); err != nil {
		return "", fmt.Errorf("clearing up what was kept of %q: %w", j.o.Name, err)
	}
	p := j.fresh(PhaseFetching, j.c.InstanceID())
	m := j.manifestOf(p, e, told.Manifest)
	m.Version = nextVersion(all, p.Started)
	p.Remote, p.Manifest = told.Path, &m
	s := Saved{Path: filepath.Join(j.folder, m.Version)}
	defer j.forget(savingFile)
	if err := j.download(ctx, &p, &s); err != nil || !s.Done() {
		return "", err
	}
	return m.Version, nil
}

// KeptVersion is what to bring back: a version that Keep made, of these iterations of a run.
type KeptVersion struct {
	Run     string // its key in the kernel
	Version string
	Done    int64
	Absent  []string // names to remove: the set-up makes them, and iterations removed them
	Until   time.Time
}

// Restore loads a version into the kernel, where the run's set-up has run and nothing
// else of it. The kernel then stands at iteration Done. All names come back, or none.
func (k *Keeper) Restore(ctx context.Context, b KeptVersion) (Restored, error) {
	o := k.options(b.Until, &run{key: b.Run, done: b.Done, absent: append([]string{}, b.Absent...)})
	o.Version = b.Version
	return Restore(ctx, k.c, k.dir, o)
}

// DropOthers drops all versions but one, which may be none.
func (k *Keeper) DropOthers(version string) error {
	folder := k.options(time.Time{}, &run{}).folder(k.dir)
	all, err := versions(folder)
	j := &job{folder: folder, o: Options{Name: k.name}}
	for _, v := range all {
		if v.name != version && err == nil {
			err = j.drop(v)
		}
	}
	if len(all) > 0 && err == nil {
		err = j.removeDropped()
	}
	return err
}

// DropAll removes all that is kept of the run.
func (k *Keeper) DropAll() error {
	folder := k.options(time.Time{}, &run{}).folder(k.dir)
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	j, done, err := open(k.c, k.dir, k.options(time.Time{}, &run{}))
	if err != nil {
		return err
	}
	defer done()
	if err := os.RemoveAll(j.folder); err != nil {
		return fmt.Errorf("removing what was kept of %q: %w", k.name, err)
	}
	return nil
}

// removeOrphans removes what is kept of runs whose checkpoint file somebody deleted.
func (k *Keeper) removeOrphans() {
	entries, _ := os.ReadDir(filepath.Join(k.dir, keptFolder))
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(k.dir, e.Name()+filepath.Ext(checkpoint.Path("", "x")))); errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(filepath.Join(k.dir, keptFolder, e.Name()))
		}
	}
}
