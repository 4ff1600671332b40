package kernelstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

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
