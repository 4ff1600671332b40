package nbrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/jobs"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// stepsFor returns the steps of the cells that are to be run, in order, up to one after which the
// variables are saved. begun has the ids of those that have begun, by the keys of their cells. Cells
// that need what failed before are skipped here.
func (a *advance) stepsFor(begun map[int]string) (sent []contract.JobStep, steps []Step) {
	ids := map[int]string{}
	maps.Copy(ids, begun)
	a.needs = a.linkCells()
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		if _, has := begun[c.Key]; has || !c.pending() || a.passOver(c) {
			continue
		}
		now := a.view.byHandle[c.Handle]
		inJob, lacking := a.split(c, ids)
		switch {
		case now.has(tagForce):
			inJob = nil
		case lacking != nil:
			c.Status, c.Why = CellSkipped, lacking.why()
			continue
		}
		s := a.stepFor(c, now, inJob)
		ids[c.Key] = s.StepID
		sent, steps = append(sent, s), append(steps, Step{s.StepID, c.Key, c.Source, c.Sent})
		if now.has(tagSaveState) && a.savesStates() {
			break
		}
	}
	return sent, steps
}

// stepFor is the step of a cell. Its id is made of all that it says, so that an edit changes the
// steps of the edited cells alone.
func (a *advance) stepFor(c *CellRecord, now *cell, skipIfFailed []string) contract.JobStep {
	c.Source, c.Sent, c.Index, c.Title = now.source, now.sent, now.index, now.title
	s := contract.JobStep{
		Code: now.code, TimeoutSeconds: now.timeout(a.spec.CellTimeout), Attempts: 1 + now.retries(a.spec.Retries),
		MayFail: a.spec.OnError != StopOnError || now.has(tagExpectFailure), SkipIfFailed: skipIfFailed,
		SourceName: fmt.Sprintf("%s cell %d", shorten(filepath.Base(a.record.Path), contract.MaxSourceName/2), now.index),
	}
	text, err := json.Marshal([]any{c.Key, now.sent, s.TimeoutSeconds, s.Attempts, s.MayFail, s.SkipIfFailed, s.SourceName})
	if err != nil {
		panic(err) // strings and numbers only
	}
	s.StepID = hash(string(text))[:40]
	return s
}

// passOver decides whether a pending cell is not to be run, and says why.
func (a *advance) passOver(c *CellRecord) bool {
	if now := a.view.byHandle[c.Handle]; now != nil {
		c.Why = a.record.passes(now)
	} else {
		c.Why = "the cell was deleted before it ran"
		a.addNote("cell %d (id %s) is no longer in the notebook as it was: it was not run", c.Index, c.Handle)
	}
	return c.Why != ""
}

// passes says why the notebook itself asks not to run a cell; empty if it does not.
func (r *Record) passes(c *cell) string {
	switch {
	case c.has(tagSkip):
		return "the cell has the tag " + tagSkip
	case c.has(tagFrozen) && r.stateOfLast(c.handle, c.source) == Clean:
		return "the cell has the tag " + tagFrozen + " and has succeeded in this kernel"
	}
	return ""
}

// startJob prepares the job of the cells that are left; the run has none if no cell is.
func (a *advance) startJob(ctx context.Context) error {
	if err := a.readFacts(ctx); err != nil {
		return err
	}
	sent, steps := a.stepsFor(nil)
	if len(steps) == 0 {
		return nil
	}
	a.prepareJob(sent, steps)
	return nil
}

// prepareJob prepares a job, which follow submits.
func (a *advance) prepareJob(sent []contract.JobStep, steps []Step) {
	t := jobs.New(a.vm.InstanceID(), contract.JobSubmit{KernelID: a.run.KernelID, Steps: sent})
	a.run.Job = &JobRecord{Ticket: t, Steps: steps}
}

// goOnWithJob reads what the run's job did since the last call, and reports whether there is more
// to do in this call.
func (a *advance) goOnWithJob(ctx context.Context) (more bool, err error) {
	j, err := a.follow(ctx)
	switch {
	case jobs.IsGone(err):
		if !errors.Is(err, jobs.ErrReplaced) {
			a.addNote("the VM no longer knows what the run did: which of the cells ran there is unknown")
		}
		if met := a.meetKernel(ctx); !errors.Is(met, errEnough) {
			return true, met
		}
		return false, err
	case err != nil:
		return false, err
	case a.run.Job.IsRead(j):
		return a.endJob(ctx, j)
	}
	return a.changed(), nil
}

// follow submits the job if the VM does not have it yet, and reads what it did since the last call,
// until it ends, the time is over, the job waits for somebody or the notebook was edited.
func (a *advance) follow(ctx context.Context) (j contract.Job, err error) {
	var failed error
	job := a.run.Job
	if err := job.Submit(ctx, a.vm, a.save); err != nil {
		if jobs.IsRefused(err) && !jobs.IsGone(err) && !job.MayRun {
			a.run.Job = nil
		}
		return j, err
	}
	j, err = job.Follow(ctx, &peeker{a.vm, a}, jobs.FollowOptions{
		Until: a.opt.Until, MaxBytes: contract.MaxReadBytes, BehindInput: a.opt.BehindInput,
		Visit: func(e jobs.Entry, x contract.Execution) bool {
			failed = a.visit(ctx, e, x)
			return failed == nil && !a.changed()
		},
		Done: func(e jobs.Entry, x contract.Execution) bool {
			failed = a.land(e, x)
			return failed == nil
		},
	})
	a.out.Behind = nil
	switch {
	case failed != nil:
		return j, failed
	case err != nil || job.IsRead(j):
	case a.now.prompt() != nil:
		a.run.Status, a.out.Prompt = StatusWaitingForInput, a.now.prompt()
	case client.WaitsForInput(j.Behind) != nil && !a.opt.BehindInput:
		a.out.Behind = j.Behind
	case j.State == contract.JobWaiting && j.Reason != "":
		a.addNote("the run waits on the VM: %s", plain.Quote(j.Reason))
	}
	return j, err
}

// visit takes in an answer about a cell's execution: its state and its new events.
func (a *advance) visit(ctx context.Context, e jobs.Entry, x contract.Execution) error {
	step, c := a.stepOf(e)
	if c == nil {
		return nil
	}
	a.outputs.add(ctx, c, step.Source, x)
	a.now.see(x)
	a.out.Execution = x
	a.out.Execution.Events = nil
	at := c.attempt(x.ExecutionID)
	if at.Status == "" { // else an earlier call recorded its end
		c.Status = CellRunning
		at.begin(x)
	}
	if a.opt.Progress != nil {
		a.opt.Progress(Progress{Done: a.run.done(), Total: len(a.run.Plan), Index: c.Index, Title: c.Title, LastLine: a.now.lastLine})
	}
	if a.opt.Output != nil && len(x.Events) > 0 {
		a.opt.Output(*c, x.ExecutionID, x.Events)
	}
	if err := a.flush(ctx, false); err != nil || time.Since(a.savedAt) < savePause {
		return err
	}
	return a.save() // for readers of the record
}

// stepOf returns what an entry of the job runs, and the cell; nil if the run does not know it.
func (a *advance) stepOf(e jobs.Entry) (*Step, *CellRecord) {
	step := a.run.Job.step(e)
	if step == nil {
		a.addNote("the run on the VM has a step that this computer did not send; it is ignored")
		return nil, nil
	}
	return step, a.run.keyed(step.Cell)
}

// step returns what an entry runs; nil if it is not one of the job's steps.
func (j *JobRecord) step(e jobs.Entry) *Step {
	j.isAt(j.Revision)
	if e.Index < len(j.Steps) && j.Steps[e.Index].ID == e.StepID {
		return &j.Steps[e.Index]
	}
	return nil
}

// flush writes the outputs that differ from the notebook, if a write is due or forced. What a
// record says to be written is in the notebook before the record is.
func (a *advance) flush(ctx context.Context, force bool) error {
	notes, err := a.outputs.flush(ctx, a.work, a.run.handle, force)
	a.addNotes(notes)
	if job := a.run.Job; job != nil && err == nil && len(a.outputs.pending) == 0 {
		job.Written = job.Entry
	}
	return err
}
