package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/executor/execution"
	"colabrelay/shared/contract"
)

// Patch replaces steps that have not begun. A repeated patch_id changes nothing.
func (js *Jobs) Patch(id string, p contract.JobPatch) (contract.Job, error) {
	if !contract.StepIDPattern().MatchString(p.PatchID) {
		return contract.Job{}, bad("patch_id: must be 1 to %d characters of A-Z a-z 0-9 . _ -", contract.MaxStepIDLen)
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	j, err := js.findLocked(id)
	switch {
	case err != nil:
		return contract.Job{}, err
	case j == nil:
		return contract.Job{}, fmt.Errorf("%w: it has ended", ErrConflict)
	}
	sum := digest(p)
	if known, ok := j.patches[p.PatchID]; ok {
		if known != sum {
			return contract.Job{}, fmt.Errorf("%w: this patch_id was used for a different patch", ErrConflict)
		}
		return j.snapshotLocked(0), nil
	}
	return j.patchLocked(p, sum)
}

func (j *Job) patchLocked(p contract.JobPatch, sum string) (contract.Job, error) {
	at, err := j.patchableLocked(p)
	if err != nil {
		return contract.Job{}, err
	}
	steps, err := plan(j.steps[:at], p.Steps)
	if err == nil {
		err = checkSize(steps, j.loop)
	}
	if err != nil {
		return contract.Job{}, err
	}
	before, size := j.steps, j.Size()
	j.steps = steps
	if j.measureLocked(); j.Size() > size {
		grown := j.Size() - size
		j.size.Store(int64(size)) // Room counts it as it is
		err = j.jobs.cfg.Queue.Room(j.caller, grown)
	}
	l := &patchLine{ID: p.PatchID, SHA256: sum, At: at}
	for _, s := range p.Steps {
		l.Steps = append(l.Steps, s.StepID)
	}
	if err == nil {
		err = j.recordNow(line{Patch: l})
	}
	if err != nil {
		j.steps = before
		j.measureLocked()
		return contract.Job{}, err
	}
	j.measureLocked()
	j.patches[p.PatchID] = sum
	j.revision++
	j.compactLocked(l)
	j.wakeLocked()
	return j.snapshotLocked(0), nil
}

// compactLocked writes the record anew when the lines of patches have become many.
func (j *Job) compactLocked(added *patchLine) {
	if j.patched += 1 + len(added.Steps); j.patched <= maxPatched {
		return
	}
	if err := j.recordAgainLocked(); err != nil {
		j.jobs.log.Error("writing the record of a job anew", "job_id", j.id, "err", err)
	}
}

// patchableLocked returns the index of the first step that a patch replaces.
func (j *Job) patchableLocked(p contract.JobPatch) (at int, err error) {
	refuse := func(format string, args ...any) (int, error) {
		return 0, fmt.Errorf("%w: %s", ErrConflict, fmt.Sprintf(format, args...))
	}
	switch {
	case j.state.Ended():
		return refuse("it has ended: %s", j.state)
	case j.deleted:
		return refuse("it was deleted")
	case p.Revision != j.revision:
		return refuse("its revision is %d, and the patch is for revision %d", j.revision, p.Revision)
	case len(j.patches) >= contract.MaxJobPatches:
		return refuse("it was patched %d times, and no more patches are accepted", contract.MaxJobPatches)
	case len(j.rounds) > 0:
		return refuse("its loop has begun")
	}
	at = len(j.steps)
	if p.From != "" {
		for at = range j.steps {
			if j.steps[at].id == p.From {
				break
			}
		}
		if len(j.steps) == 0 || j.steps[at].id != p.From {
			return refuse("it has no step with the id that from names")
		}
	}
	if at < j.next {
		return refuse("step %s has begun or was skipped", j.steps[at].id)
	}
	return at, nil
}

// Delete has nothing further of a job begin. A step that runs goes on to its end, or is
// interrupted. A job that has ended stays as it is.
func (js *Jobs) Delete(ctx context.Context, id string, interrupt bool) (contract.Job, error) {
	j, running, err := js.delete(id)
	if err != nil {
		return contract.Job{}, err
	}
	if interrupt && running != "" {
		_, err := js.cfg.Queue.Interrupt(ctx, running)
		if err != nil && !errors.Is(err, execution.ErrFinished) {
			return contract.Job{}, err
		}
	}
	if j == nil {
		past, _ := js.cfg.Journal.PastJob(id)
		return pastJob(past), nil
	}
	if interrupt && running != "" {
		j.awaitEnd(ctx) // which follows that of its execution
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	return j.snapshotLocked(0), nil
}

// endTime is how long the end of a job may take after that of its last execution.
const endTime = time.Second

// awaitEnd returns when the job has ended, or after endTime.
func (j *Job) awaitEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	for {
		changed := j.nextChange()
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// nextChange returns a channel that is closed at the job's next change, nil if it has ended.
func (j *Job) nextChange() <-chan struct{} {
	j.jobs.mu.Lock()
	defer j.jobs.mu.Unlock()
	if j.state.Ended() {
		return nil
	}
	return j.changesLocked()
}

// delete marks a job as deleted and returns it, nil if only a tombstone remembers it, and the id
// of its execution that runs.
func (js *Jobs) delete(id string) (j *Job, running string, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j, err = js.findLocked(id); err != nil || j == nil || j.state.Ended() {
		return j, "", err
	}
	if j.running != nil {
		j.deleted = true
		j.wakeLocked()
		return j, j.running.ID, nil
	}
	j.jobs.cfg.Queue.Leave(j)
	j.endLocked(contract.JobCancelled, contract.CauseDeleted, "it was deleted")
	return j, "", nil
}
