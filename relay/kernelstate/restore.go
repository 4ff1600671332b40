package kernelstate

import (
	"context"
	"fmt"
	"path/filepath"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
)

// Restored is how far a restore is. Manifest describes the version; Loaded is empty until
// the restore is finished.
type Restored struct {
	Progress
	Manifest Manifest
	Loaded   Loaded
}

// Restore loads a version of o.Name into the kernel. It replaces variables that have the
// same names. If o.Until passes before it is finished, the same call resumes it. Nothing is
// unpickled unless the SHA-256 of the file is right, here and again on the VM. Unpickling runs
// code, so a warning says when the version comes from another VM.
func Restore(ctx context.Context, c *client.Client, dir string, o Options) (Restored, error) {
	if !o.exists(dir) {
		return Restored{}, fmt.Errorf("%q: %w", o.Name, ErrNotFound)
	}
	return inJob(c, dir, o, func(j *job) (Restored, error) {
		r, _, err := j.restore(ctx)
		return r, err
	})
}

// restore goes on with the work until the call's time is over. That of a Keeper ends before the
// kernel loads the file.
func (j *job) restore(ctx context.Context) (r Restored, p pending, err error) {
	p, err = j.resumeOrStart(ctx, restoringFile, PhasePreparing, &r.Progress)
	if err != nil {
		return r, p, err
	}
	if err := j.pick(ctx, &p, &r); err != nil {
		j.removePending(restoringFile)
		return r, p, err
	}
	r.Manifest = *p.Manifest
	for _, step := range []struct {
		phase Phase
		do    func(context.Context, *pending, *Restored) error
	}{{PhasePreparing, j.prepare}, {PhaseSending, j.send}, {PhaseLoading, j.load}} {
		if p.Phase != step.phase || p.Phase == PhaseLoading && j.o.kept {
			continue
		}
		r.Phase = p.Phase
		err := step.do(ctx, &p, &r)
		if isFinal(err) {
			j.removeSent(ctx, &p)
			j.removePending(restoringFile)
		}
		if err != nil || p.Phase == step.phase { // in the same phase: the call's time is over
			return r, p, err
		}
	}
	r.Phase = p.Phase
	return r, p, nil
}

// pick chooses the version. Resumed work keeps its version, unless the call requests another one.
func (j *job) pick(ctx context.Context, p *pending, r *Restored) error {
	if p.Manifest != nil {
		if p.Asked == j.o.Version {
			return nil
		}
		j.removeSent(ctx, p)
		*p = j.newPending(PhasePreparing, p.InstanceID)
	}
	m, err := j.choose(ctx, &r.Progress)
	if err != nil {
		return err
	}
	p.Manifest, p.Asked = &m, j.o.Version
	return j.savePending(restoringFile, p)
}

// removeSent deletes what the work left on the VM.
func (j *job) removeSent(ctx context.Context, p *pending) {
	if p.Remote != "" {
		j.removeRemote(ctx, p.Remote)
	}
}

// prepare runs the operation that creates a private folder for the upload.
func (j *job) prepare(ctx context.Context, p *pending, r *Restored) error {
	savePending := func() error { return j.savePending(restoringFile, p) }
	text, err := j.run(ctx, &p.Prepare, operationOf(prepareTitle, "prepare"), savePending, &r.Progress)
	if err != nil || text == nil {
		return err
	}
	var report prepared
	if err := decode(ctx, text, &report); err != nil {
		return err
	}
	p.Phase, p.Remote = PhaseSending, report.Path
	return savePending()
}

// send uploads the data file.
func (j *job) send(ctx context.Context, p *pending, r *Restored) error {
	due, cancel := j.untilDue(ctx)
	defer cancel()
	local := filepath.Join(j.folder, p.Manifest.Version, dataFile)
	var err error
	r.Transfer, err = transfer.Upload(due, j.c, local, p.Remote, transfer.Options{Overwrite: true, Report: j.o.Report})
	switch {
	case err != nil && due.Err() != nil && ctx.Err() == nil:
		return j.savePending(restoringFile, p) // the next call resumes the upload
	case err != nil:
		return err
	}
	p.Phase = PhaseLoading // in which the kernel compares the digest
	return j.savePending(restoringFile, p)
}

// load runs the operation that checks the file and loads its variables.
func (j *job) load(ctx context.Context, p *pending, r *Restored) error {
	savePending := func() error { return j.savePending(restoringFile, p) }
	text, err := j.run(ctx, &p.Work, operationOf(restoreTitle, "restore", p.Remote, p.Manifest.Bytes, p.Manifest.SHA256), savePending, &r.Progress)
	if err != nil || text == nil {
		return err
	}
	replaced, err := j.kernelReplaced(ctx, r.Execution.KernelID)
	if replaced {
		r.warn("the kernel was replaced after the state was loaded: call again to load it into the new one")
	}
	j.removePending(restoringFile)
	if err != nil || replaced {
		return err
	}
	if err := decode(ctx, text, &r.Loaded); err != nil {
		return err
	}
	if r.Loaded.Damaged != "" {
		return damaged("on the VM %s, so it was not loaded", r.Loaded.Damaged)
	}
	if saved := p.Manifest.InstanceID; saved != "" && saved != p.InstanceID {
		r.warn("the variables come from another VM, and loading them ran code that whoever controlled that VM could choose: if you do not trust what ran there, start a new VM without them")
	}
	p.Phase = PhaseDone
	return nil
}

// kernelReplaced reports whether the kernel into which an earlier call loaded the state has
// been replaced.
func (j *job) kernelReplaced(ctx context.Context, loadedInto string) (bool, error) {
	if !j.resumed {
		return false, nil
	}
	k, err := j.c.Kernel(ctx)
	return err == nil && k.KernelID != loadedInto, err
}
