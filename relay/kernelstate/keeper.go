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

// keepDeadline of the keep operation, on the VM: a __reduce__ that never ends must not
// delay the run for long.
const keepDeadline = time.Minute

// Keeper keeps copies of the variables that the iterations of one chunked run pass on. They
// are not among the user's saved states: a newer version replaces the older one, and the caller
// deletes them when the run ends.
type Keeper struct {
	c             *client.Client
	dir           string
	name, runtime string
}

// NewKeeper returns the Keeper of the run whose checkpoint in dir has that name.
func NewKeeper(c *client.Client, dir, name, runtime string) *Keeper {
	return &Keeper{c: c, dir: dir, name: name, runtime: runtime}
}

// chunkedRun is the run that variables belong to.
type chunkedRun struct {
	key    string
	done   int64    // the iterations whose results the variables contain
	absent []string // names to delete
}

// KeepRequest says what to keep of a run.
type KeepRequest struct {
	Run        string        // the run's key in the kernel
	Names      []string      // the variables that iterations pass on
	LastSHA256 string        // KeepResult.SHA256 of the version kept last
	MaxBytes   int64         // of all variables together
	MaxBusy    time.Duration // how long the kernel may be busy with it
	Until      time.Time     // when to stop waiting
	// AllowDownload decides, when the size is known, whether the file is downloaded.
	AllowDownload func(bytes int64) bool
}

// KeepResult is the result of Keep. Exactly one of Missing, TooSlow, TimedOut, DownloadRefused,
// Unchanged, Unsaveable and Version is set.
type KeepResult struct {
	Done    int64    // the iterations whose results the variables contain
	Version string   // the new version on this computer
	SHA256  string   // of its data
	Absent  []string // requested names that do not exist
	Bytes   int64

	Missing         bool       // the kernel does not have this run's variables
	TooSlow         bool       // it would have kept the kernel busy for longer than MaxBusy
	TimedOut        bool       // it did not finish by Until
	DownloadRefused bool       // AllowDownload refused
	Unchanged       bool       // the version kept last has the same data
	Unsaveable      []Omission // variables that can't be saved; then no variable was kept
}

// keepReport is what the keep operation reports.
type keepReport struct {
	saved
	Missing, Slow, Unchanged bool
	Unsaveable               []Omission `json:"unkept"`
	Absent                   []string
	Done                     int64
}

func (k *Keeper) options(until time.Time, r *chunkedRun) Options {
	return Options{Name: k.name, Runtime: k.runtime, Until: until, run: r}
}

// Keep makes a version of the variables as they are now. It does not delete older versions;
// DropOthers does.
func (k *Keeper) Keep(ctx context.Context, o KeepRequest) (KeepResult, error) {
	j, unlock, err := open(k.c, k.dir, k.options(o.Until, &chunkedRun{key: o.Run}))
	if err != nil {
		return KeepResult{}, err
	}
	defer unlock()
	k.removeOrphans()
	report, e, err := j.keep(ctx, o)
	if err != nil || report == nil {
		return KeepResult{TimedOut: err == nil}, err
	}
	kept := KeepResult{
		Done: report.Done, Absent: report.Absent, Missing: report.Missing,
		TooSlow: report.Slow, Unchanged: report.Unchanged, Unsaveable: report.Unsaveable,
	}
	if kept.Missing || kept.TooSlow || kept.Unchanged || len(kept.Unsaveable) > 0 {
		return kept, nil
	}
	if err := report.saved.check(); err != nil {
		return kept, err
	}
	defer j.removeRemote(ctx, report.Path)
	kept.Bytes, kept.SHA256 = report.Manifest.Bytes, report.Manifest.SHA256
	if kept.DownloadRefused = !o.AllowDownload(kept.Bytes); kept.DownloadRefused {
		return kept, nil
	}
	kept.Version, err = j.fetchKept(ctx, report.saved, e)
	kept.TimedOut = err == nil && kept.Version == ""
	return kept, err
}

// keep runs the keep operation in the kernel. If it does not finish in time it is
// interrupted, and the report is nil.
func (j *job) keep(ctx context.Context, o KeepRequest) (*keepReport, contract.Execution, error) {
	var p Progress
	w := work{
		step:      &step{RequestID: rand.Text(), Deadline: keepDeadline},
		operation: j.operation(keepTitle, "keep", o.Run, o.Names, o.LastSHA256, o.MaxBytes, o.MaxBusy.Seconds()),
		save:      func() error { return nil },
	}
	report, err := j.run(ctx, w, &p)
	if err == nil && report == nil {
		_, err = j.c.Interrupt(ctx, w.ExecutionID)
		return nil, p.Execution, err
	}
	if err != nil {
		return nil, p.Execution, err
	}
	var kept keepReport
	return &kept, p.Execution, decode(report, &kept)
}

// fetchKept downloads the file and makes it a version. It returns an empty name if the
// time was over before that.
func (j *job) fetchKept(ctx context.Context, report saved, e contract.Execution) (string, error) {
	all, err := versions(j.folder)
	if err != nil {
		return "", err
	}
	if err := j.removeIncoming(); err != nil {
		return "", err
	}
	p := j.newPending(PhaseFetching, j.c.InstanceID())
	m := j.manifestOf(p, e, report.Manifest)
	m.Version = nextVersion(all, p.Started)
	p.Remote, p.Manifest = report.Path, &m
	s := Saved{Path: filepath.Join(j.folder, m.Version)}
	defer j.removePending(savingFile)
	if err := j.download(ctx, &p, &s); err != nil || !s.Done() {
		return "", err
	}
	return m.Version, nil
}

// KeptVersion names a version that Keep made, and what to restore besides its variables.
type KeptVersion struct {
	Run     string // the run's key in the kernel
	Version string
	Done    int64    // the iterations whose results the variables contain
	Absent  []string // names to delete: the setup code creates them, an iteration deleted them
	Until   time.Time
}

// Restore loads a version into a kernel in which the run's setup code has run, but no
// iteration. The kernel then continues at iteration v.Done. Either all variables are
// restored or none.
func (k *Keeper) Restore(ctx context.Context, v KeptVersion) (Restored, error) {
	o := k.options(v.Until, &chunkedRun{key: v.Run, done: v.Done, absent: append([]string{}, v.Absent...)})
	o.Version = v.Version
	return Restore(ctx, k.c, k.dir, o)
}

// DropOthers deletes all versions except one. With an empty name it deletes all of them.
func (k *Keeper) DropOthers(version string) error {
	folder := k.options(time.Time{}, &chunkedRun{}).folder(k.dir)
	all, err := versions(folder)
	if err != nil || len(all) == 0 {
		return err
	}
	j := &job{folder: folder, o: Options{Name: k.name}}
	for _, v := range all {
		if v.name == version {
			continue
		}
		if err := j.drop(v); err != nil {
			return err
		}
	}
	return j.removeDropped()
}

// DropAll deletes everything that is kept of the run.
func (k *Keeper) DropAll() error {
	o := k.options(time.Time{}, &chunkedRun{})
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
