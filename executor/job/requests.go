package job

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"colabrelay/executor/execution"
	"colabrelay/shared/contract"
)

// Read returns a job, with its entries from index from on. It waits until the entry at from has
// begun or was skipped, or the job has ended or waits, but at most for wait.
func (js *Jobs) Read(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	end := time.NewTimer(wait)
	defer end.Stop()
	for over := wait <= 0; ; {
		x, changed, err := js.look(id, from)
		if err != nil || changed == nil || over {
			return x, err
		}
		select {
		case <-changed:
		case <-end.C:
			over = true
		case <-ctx.Done():
			return contract.Job{}, ctx.Err()
		}
	}
}

// look returns the job as it is now. If a reader may wait for more, changed is closed at the
// job's next change.
func (js *Jobs) look(id string, from int) (x contract.Job, changed <-chan struct{}, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.flushLocked()
	j, err := js.findLocked(id)
	if err != nil {
		return x, nil, err
	}
	if j == nil {
		past, _ := js.past(id)
		return pastJob(past), nil, nil
	}
	if x = j.snapshotLocked(from); x.State.Ended() || x.State == contract.JobWaiting || x.Next > from {
		return x, nil, nil
	}
	return x, j.changesLocked(), nil
}

// changesLocked returns a channel that is closed at the job's next change.
func (j *Job) changesLocked() <-chan struct{} {
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return j.changed
}

// findLocked returns a job, nil if only a tombstone remembers it.
func (js *Jobs) findLocked(id string) (*Job, error) {
	if j := js.byID[id]; j != nil {
		return j, nil
	}
	if _, ok := js.past(id); ok {
		return nil, nil
	}
	return nil, ErrNotFound
}

// snapshotLocked is the job with its entries from index from on.
func (j *Job) snapshotLocked(from int) contract.Job {
	x := j.headLocked()
	x.From = min(from, x.Entries)
	listed := x.Entries
	if !x.State.Ended() {
		listed = j.Next
	}
	for i := x.From; i < min(listed, x.From+contract.MaxJobEntries); i++ {
		e := j.entries[i]
		if j.running != nil && j.running.ID == e.ExecutionID {
			if now := j.running.Status(); !now.Finished() {
				e.Status = contract.StepStatus(now)
			}
		}
		x.Steps = append(x.Steps, e)
	}
	return x
}

// headLocked is the job without its entries.
func (j *Job) headLocked() contract.Job {
	x := j.Job
	x.StepCount, x.Entries, x.Steps = len(j.steps), len(j.entries), []contract.JobEntry{}
	switch {
	case x.State.Ended():
	case j.running == nil:
		x.Behind = j.jobs.cfg.Queue.Behind()
	case j.running.Status() == contract.StatusWaitingForInput:
		x.State, x.Cause, x.Reason = contract.JobWaiting, contract.CauseInput, fmt.Sprintf("run %s asks for input", j.running.ID)
	case j.deleted:
		x.Reason = fmt.Sprintf("it was deleted, and ends when run %s ends", j.running.ID)
	}
	return x
}

// pastJob is the job of a tombstone.
func pastJob(h head) contract.Job {
	x := h.Job
	x.Steps = []contract.JobEntry{}
	if h.SHA256 != "" { // else its record is missing
		x.Reason = strings.TrimPrefix(x.Reason+"; its steps are no longer listed, because newer jobs replaced it", "; ")
	}
	return x
}

// Patch replaces steps that have not begun.
func (js *Jobs) Patch(id string, p contract.JobPatch) (contract.Job, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j, err := js.findLocked(id)
	switch {
	case err != nil:
		return contract.Job{}, err
	case j == nil:
		return contract.Job{}, fmt.Errorf("%w: it has ended", ErrConflict)
	}
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
	if grown := sizeOf(steps, j.loop) - j.Size(); grown > 0 {
		if err := js.cfg.Queue.Room(j.caller, grown); err != nil {
			return contract.Job{}, err
		}
	}
	before := j.steps
	j.setSteps(steps)
	j.Revision++
	if err := j.writeHeadLocked(); err != nil {
		j.setSteps(before)
		j.Revision--
		j.unsaved = append(j.unsaved, j.headLine()) // in place of the one that is refused
		return contract.Job{}, err
	}
	j.wakeLocked()
	return j.snapshotLocked(0), nil
}

// patchableLocked returns the index of the first step that a patch replaces.
func (j *Job) patchableLocked(p contract.JobPatch) (at int, err error) {
	refuse := func(format string, args ...any) (int, error) {
		return 0, fmt.Errorf("%w: %s", ErrConflict, fmt.Sprintf(format, args...))
	}
	switch {
	case j.State.Ended():
		return refuse("it has ended: %s", j.State)
	case j.deleted:
		return refuse("it was deleted")
	case p.Revision != j.Revision:
		return refuse("its revision is %d, and the patch is for revision %d", j.Revision, p.Revision)
	case j.rounds() > 0:
		return refuse("its loop has begun")
	}
	at = len(j.steps)
	if p.From != "" {
		for at = range j.steps {
			if j.steps[at].StepID == p.From {
				break
			}
		}
		if len(j.steps) == 0 || j.steps[at].StepID != p.From {
			return refuse("it has no step with the id that from names")
		}
	}
	if at < j.Next {
		return refuse("step %s has begun or was skipped", j.steps[at].StepID)
	}
	return at, nil
}

// Delete has nothing further of a job begin. A step that runs goes on to its end, or is
// interrupted. A job that has ended stays as it is.
func (js *Jobs) Delete(ctx context.Context, id string, interrupt bool) (contract.Job, error) {
	running, err := js.delete(id)
	if err != nil {
		return contract.Job{}, err
	}
	if interrupt && running != "" {
		_, err := js.cfg.Queue.Interrupt(ctx, running)
		if err != nil && !errors.Is(err, execution.ErrFinished) {
			return contract.Job{}, err
		}
		// The end of the job follows that of its execution.
		if _, err := js.Read(ctx, id, math.MaxInt, endTime); err != nil {
			return contract.Job{}, err
		}
	}
	return js.Read(ctx, id, 0, 0)
}

// endTime is how long the end of a job may take after that of its last execution.
const endTime = time.Second

// delete marks a job as deleted and returns the id of its execution that runs.
func (js *Jobs) delete(id string) (running string, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j, err := js.findLocked(id)
	switch {
	case err != nil || j == nil || j.State.Ended():
		return "", err
	case j.running != nil:
		j.deleted = true
		j.wakeLocked()
		return j.running.ID, nil
	}
	js.cfg.Queue.Leave(j)
	j.endLocked(contract.JobCancelled, contract.CauseDeleted, "it was deleted")
	return "", nil
}
