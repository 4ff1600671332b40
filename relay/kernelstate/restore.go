package kernelstate

import (
	"context"
	"fmt"
	"path/filepath"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
)

// roomLeft is what an upload leaves free on the VM's disk.
const roomLeft = 64 << 20

// Restored is where a restore stands. Manifest is of the version that is or was
// restored; Loaded is filled at the end.
type Restored struct {
	Progress
	Manifest Manifest
	Loaded   Loaded
}

// Restore brings the variables of a version of o.Name into the kernel. Names that the
// kernel has already are replaced. Where the call's time ends before it is done, the
// same call goes on. Nothing is unpickled unless the SHA-256 of the file holds, here
// and again on the VM.
func Restore(ctx context.Context, c *client.Client, dir string, o Options) (Restored, error) {
	if !o.exists(dir) {
		return Restored{}, fmt.Errorf("%q: %w", o.Name, ErrNotFound)
	}
	j, done, err := open(c, dir, o)
	if err != nil {
		return Restored{}, err
	}
	defer done()
	r, err := j.restore(ctx)
	if j.beginAnew(err) {
		return j.restore(ctx)
	}
	return r, err
}

func (j *job) restore(ctx context.Context) (Restored, error) {
	var r Restored
	p, err := j.takeUp(ctx, restoringFile, PhasePreparing, &r.Progress)
	if err != nil {
		return r, err
	}
	if err := j.pick(ctx, &p, &r); err != nil {
		j.forget(restoringFile)
		return r, err
	}
	r.Manifest = *p.Manifest
	for _, step := range []struct {
		phase Phase
		do    func(context.Context, *pending, *Restored) error
	}{{PhasePreparing, j.prepare}, {PhaseSending, j.send}, {PhaseLoading, j.load}} {
		if p.Phase != step.phase {
			continue
		}
		r.Phase = p.Phase
		err := step.do(ctx, &p, &r)
		if over(err) {
			j.forget(restoringFile)
		}
		if err != nil || p.Phase == step.phase { // the same one: the call's time is over
			return r, err
		}
	}
	r.Phase = p.Phase
	return r, nil
}

// pick decides on the version, once for all calls of this restore: as long as it is
// the one asked for, and no newer one was saved meanwhile.
func (j *job) pick(ctx context.Context, p *pending, r *Restored) error {
	all, err := versions(j.folder)
	if err != nil {
		return err
	}
	newest := ""
	if len(all) > 0 {
		newest = all[0].name
	}
	if p.Manifest != nil && p.Newest == newest && p.Asked == j.o.Version {
		return nil
	}
	if p.Manifest != nil {
		if err := j.startOver(ctx, p); err != nil {
			return err
		}
	}
	m, err := j.choose(ctx, &r.Progress)
	if err != nil {
		return err
	}
	p.Manifest, p.Newest, p.Asked = &m, newest, j.o.Version
	return j.note(restoringFile, p)
}

// startOver gives up what was begun of a restore.
func (j *job) startOver(ctx context.Context, p *pending) error {
	if p.Remote != "" {
		j.removeRemote(ctx, p.Remote)
	}
	*p = j.fresh(PhasePreparing, p.InstanceID)
	return j.note(restoringFile, p)
}

// prepare has the kernel make a folder for the upload, which it alone can read.
func (j *job) prepare(ctx context.Context, p *pending, r *Restored) error {
	note := func() error { return j.note(restoringFile, p) }
	report, err := j.run(ctx, &p.Prepare, j.cell(prepareTitle, "prepare"), &r.Progress, note)
	if err != nil || report == nil {
		return err
	}
	var told prepared
	if err := decode(report, &told); err != nil {
		return err
	}
	p.Phase, p.Remote = PhaseSending, told.Path
	if told.Free < p.Manifest.Bytes+roomLeft {
		j.removeRemote(ctx, p.Remote)
		j.forget(restoringFile)
		return fmt.Errorf("%w: it has %d MB, and %d MB are free", ErrNoSpace, p.Manifest.Bytes>>20, told.Free>>20)
	}
	return note()
}

// send uploads the data file.
func (j *job) send(ctx context.Context, p *pending, r *Restored) error {
	held, cancel := j.held(ctx)
	defer cancel()
	local := filepath.Join(j.folder, p.Manifest.Version, dataFile)
	var err error
	r.Transfer, err = transfer.Upload(held, j.c, local, p.Remote, transfer.Options{Overwrite: true, Report: j.o.Report})
	switch {
	case err != nil && held.Err() != nil && ctx.Err() == nil:
		return j.note(restoringFile, p) // the call's time is over, no more
	case err != nil:
		return err
	case r.Transfer.SHA256 != p.Manifest.SHA256:
		j.forget(restoringFile)
		return damaged("its data file changed while it was sent")
	}
	p.Phase = PhaseLoading
	return j.note(restoringFile, p)
}

// load has the kernel check the file and bring its variables in.
func (j *job) load(ctx context.Context, p *pending, r *Restored) error {
	m, note := p.Manifest, func() error { return j.note(restoringFile, p) }
	code := j.loadCell(p.Remote, m)
	report, err := j.run(ctx, &p.Work, code, &r.Progress, note)
	if err != nil || report == nil {
		return err
	}
	if replaced, err := j.kernelReplaced(ctx, r.Execution.KernelID); err != nil || replaced {
		r.warn("the kernel was replaced after the state was loaded: call again to load it into the new one")
		j.forget(restoringFile)
		return err
	}
	j.forget(restoringFile)
	if err := decode(report, &r.Loaded); err != nil {
		return err
	}
	if r.Loaded.Damaged != "" {
		return damaged("on the VM %s, so it was not loaded", r.Loaded.Damaged)
	}
	p.Phase = PhaseDone
	return nil
}

func (j *job) loadCell(path string, m *Manifest) cell {
	if r := j.o.run; r != nil {
		return j.cell(bringTitle, "bring_back", path, m.Bytes, m.SHA256, r.key, r.done, r.absent)
	}
	return j.cell(restoreTitle, "restore", path, m.Bytes, m.SHA256)
}

// kernelReplaced reports whether the kernel that an earlier call loaded the state
// into is gone.
func (j *job) kernelReplaced(ctx context.Context, loadedInto string) (bool, error) {
	if !j.resumed {
		return false, nil
	}
	k, err := j.c.Kernel(ctx)
	return err == nil && k.KernelID != loadedInto, err
}
