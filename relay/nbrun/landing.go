package nbrun

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

// land records the end of a flight, and decides what follows from it.
func (a *advance) land(ctx context.Context, f *Flight, e contract.Execution) error {
	if f.Ended { // an earlier call recorded it; only its outputs were missing
		a.outputs.end(f, e)
		return nil
	}
	f.Ended = true
	c := a.run().cell(f.Handle)
	if e.Status == contract.StatusCancelled {
		return a.landCancelled(ctx, f, c)
	}
	a.recordEnd(c.attempt(f.RequestID), e)
	a.outputs.end(f, e)
	if ranElsewhere, err := a.checkKernel(ctx, f, e); ranElsewhere || err != nil {
		return err
	}
	if a.edited(f) {
		a.addNote("cell %d (%s) was edited while it ran: its outputs are not in the notebook, and it is dirty", c.Index, c.Handle)
	}
	switch e.Status {
	case contract.StatusSucceeded:
		return a.settle(ctx, f, c, CellSucceeded)
	case contract.StatusFailed:
		return a.landFailed(ctx, f, c, e)
	case contract.StatusTimedOut:
		return a.settle(ctx, f, c, CellTimedOut)
	case contract.StatusKernelDied, contract.StatusLost:
		return a.landKilled(ctx, f, c, e)
	}
	return a.landInterrupted(ctx, f, c, e)
}

// recordEnd records how an attempt ended, as the VM says.
func (a *advance) recordEnd(at *Attempt, e contract.Execution) {
	if at == nil {
		return
	}
	at.Status, at.KernelID, at.ExecutionID = e.Status, e.KernelID, e.ExecutionID
	if e.StartedAt != nil && e.FinishedAt != nil {
		at.Seconds = max(0, e.FinishedAt.Sub(*e.StartedAt).Seconds())
	}
	if e.Status != contract.StatusSucceeded {
		at.Error = failureOf(e)
	}
}

func failureOf(e contract.Execution) *Failure {
	failure := &Failure{Reason: shorten(e.Reason, maxValue)}
	if e.Error != nil {
		failure.EName, failure.EValue = shorten(e.Error.EName, maxName), shorten(e.Error.EValue, maxValue)
	}
	return failure
}

// shorten returns at most so many bytes of a text, as valid UTF-8.
func shorten(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "�")
}

// settle gives a cell its final status, and records that it ran.
func (a *advance) settle(ctx context.Context, f *Flight, c *CellRecord, s CellStatus) error {
	c.Status = s
	a.record.ran(f, s, a.vm.InstanceID())
	if now := a.view.byHandle[f.Handle]; s == CellSucceeded && now != nil && now.has(tagSaveState) && a.savesStates() {
		a.run().Saving = f.Handle
	}
	if !s.failed() {
		return nil
	}
	if a.deadlineCaused(s) {
		return a.stop(ctx, StatusTimedOut, 0)
	}
	return a.skipDependents(ctx)
}

// deadlineCaused reports whether a cell timed out because the run's time is over.
func (a *advance) deadlineCaused(s CellStatus) bool {
	end := a.deadline()
	return s == CellTimedOut && !end.IsZero() && !time.Now().Before(end)
}

// ran records that a cell ran in the kernel of its last attempt.
func (r *Record) ran(f *Flight, s CellStatus, instanceID string) {
	r.History[f.Handle] = LastRun{KernelID: r.Life.KernelID, Source: f.Source, Status: s}
	r.Life.InstanceID = instanceID
	r.Life.Runs = append(r.Life.Runs, CellRun{f.Handle, f.Source, f.Sent, s})
	r.Life.LastRequestID, r.Life.LastExecutionID = f.RequestID, f.ExecutionID
}

// landFailed acts on an exception.
func (a *advance) landFailed(ctx context.Context, f *Flight, c *CellRecord, e contract.Execution) error {
	now := a.view.byHandle[f.Handle]
	switch {
	case now != nil && now.has(tagExpectFailure):
		return a.settle(ctx, f, c, CellExpectedFailure)
	case e.Error == nil || now == nil || !a.mayRetry(now) || !a.policy.Retryable(e.Error.EName, e.Error.EValue):
		return a.settle(ctx, f, c, CellFailed)
	}
	c.Status = CellNotRun
	c.Retries++
	a.run().Retries++
	a.record.ran(f, CellFailed, a.vm.InstanceID())
	at := time.Now().Add(RetryWait(c.Retries, rand.Float64())).UTC()
	a.run().RetryAt = &at
	a.addNote("cell %d (%s) raised %s, which is usually transient: it is tried again", c.Index, c.Handle, shorten(e.Error.EName, maxName))
	if a.policy.NeedsCleanGPU(e.Error.EName, e.Error.EValue) {
		return a.cleanGPU(ctx)
	}
	return nil
}

// mayRetry reports whether the run would try a cell again after a transient error.
func (a *advance) mayRetry(c *cell) bool {
	planned := a.run().cell(c.handle)
	return !c.has(tagNoRetry) && planned != nil && planned.Retries < a.spec.MaxRetries &&
		a.run().Retries < a.spec.RetryBudget && a.run().Stopping == ""
}

// landKilled acts on the end of the kernel, or of the executor, while a cell ran.
func (a *advance) landKilled(ctx context.Context, f *Flight, c *CellRecord, e contract.Execution) error {
	c.Status = CellKernelDied
	if e.Status == contract.StatusLost {
		c.Status = CellLost
	}
	a.record.ran(f, c.Status, a.vm.InstanceID())
	if c.Kills++; c.Kills >= maxKills {
		a.addNote("cell %d (%s) has ended %d kernels: the run stops", c.Index, c.Handle, c.Kills)
		return a.stop(ctx, StatusKernelDied, 0)
	}
	return a.meetKernel(ctx)
}

// maxKills is how many kernels may end while one cell runs.
const maxKills = 2

// landInterrupted acts on an interrupt, or a restart of the kernel, by somebody else than this run,
// or by this run when its time is over.
func (a *advance) landInterrupted(ctx context.Context, f *Flight, c *CellRecord, e contract.Execution) error {
	switch {
	case a.run().Stopping == StatusTimedOut && e.Status == contract.StatusInterrupted:
		c.Status = CellTimedOut
	case f.Withdrawn && e.Status == contract.StatusInterrupted && a.run().Stopping == "":
		c.Status = CellNotRun // it had just started when an executor that does not know contract.QueryQueued cancelled it
		a.record.ran(f, CellInterrupted, a.vm.InstanceID())
		return nil
	default:
		c.Status = CellInterrupted
	}
	a.record.ran(f, c.Status, a.vm.InstanceID())
	if a.run().Stopping != "" {
		return nil
	}
	a.addNote("cell %d (%s) was interrupted, so the run stopped: the same call continues it with this cell", c.Index, c.Handle)
	return a.stop(ctx, StatusInterrupted, 0)
}

// landCancelled acts on a cell that was cancelled before it started: because the one that it
// follows did not run or failed, because we cancelled it, or for a reason to find out.
func (a *advance) landCancelled(ctx context.Context, f *Flight, c *CellRecord) error {
	c.dropAttempt(f.RequestID)
	life := &a.record.Life
	switch {
	case f.Withdrawn || a.run().Stopping != "":
		return nil
	case f.AfterRequestID != "" && f.AfterRequestID != life.LastRequestID: // that one did not run
		return nil
	case f.AfterRequestID != "" && !f.AfterAny && !life.lastSucceeded():
		return nil
	}
	before := *life
	if err := a.meetKernel(ctx); err != nil || a.run().KernelID != before.KernelID {
		return err
	}
	if f.AfterRequestID != "" {
		if known, err := a.knows(ctx, before.LastExecutionID); err != nil || !known {
			life.LastRequestID = "" // the executor has forgotten what the cell was to follow
			return err
		}
	}
	a.addNote("cell %d (%s) was cancelled on the VM before it started, so the run stopped: the same call continues it with this cell", c.Index, c.Handle)
	return a.stop(ctx, StatusInterrupted, 0)
}

// lastSucceeded reports whether the cell that ran last succeeded.
func (l *Life) lastSucceeded() bool {
	return len(l.Runs) > 0 && l.Runs[len(l.Runs)-1].Status == CellSucceeded
}

// knows reports whether the VM still has an execution.
func (a *advance) knows(ctx context.Context, executionID string) (bool, error) {
	_, err := a.vm.Execution(ctx, executionID, 0, 0, 1)
	if refusedAs(err, contract.CodeNotFound) {
		return false, nil
	}
	return err == nil, err
}
