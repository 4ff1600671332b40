package nbrun

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"colabrelay/relay/jobs"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// changed reports whether the notebook's code was edited since the run last compared it. A
// notebook that can't be read just now is compared later.
func (a *advance) changed() bool {
	if a.look() != nil || a.isCell() || a.run.Stopping != "" || a.view.digest == a.run.View {
		return false
	}
	a.followHandles()
	return true
}

// followChanges adapts the run to edits of the notebook: what has not begun follows the file.
func (a *advance) followChanges(ctx context.Context) error {
	job := a.run.Job
	if job != nil && !job.Accepted {
		return nil // it is changed when the VM has it
	}
	if err := a.look(); err != nil || !a.changed() {
		return err
	}
	a.adaptPlan()
	if job != nil {
		if done, err := a.editJob(ctx); err != nil || !done {
			return err
		}
	}
	a.run.View = a.view.digest
	return nil
}

// followHandles finds planned cells under their new handles. Editors give cells other ids when they
// save; where cells have no ids, handles (#index-hash8) contain indexes, which change when a cell is inserted
// or deleted above. If the cell of a handle has vanished, the cells with its source that have no
// lasting id are taken for those of the plan, in their order. Without this, cells that have run
// would count as deleted, and run again as new ones.
func (a *advance) followHandles() {
	vanished, free := map[string]bool{}, map[string][]string{} // by source
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		vanished[c.Source] = vanished[c.Source] || a.view.byHandle[c.Handle] == nil
	}
	for _, c := range a.view.cells {
		if vanished[c.source] && (strings.HasPrefix(c.handle, "#") || a.run.cell(c.handle) == nil) {
			free[c.source] = append(free[c.source], c.handle)
		}
	}
	renamed := map[string]string{}
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		left := free[c.Source]
		if len(left) == 0 || !strings.HasPrefix(c.Handle, "#") && a.view.byHandle[c.Handle] != nil {
			continue
		}
		if free[c.Source] = left[1:]; left[0] != c.Handle {
			renamed[c.Handle] = left[0]
		}
	}
	if len(renamed) > 0 {
		a.rename(renamed)
	}
}

// rename gives cells their new handles. A write meanwhile may have found none of the old ones.
func (a *advance) rename(renamed map[string]string) {
	change := func(handle *string) { *handle = cmp.Or(renamed[*handle], *handle) }
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		change(&c.Handle)
		for k := range c.SkippedBecause {
			change(&c.SkippedBecause[k].Cell)
		}
	}
	ran := map[string]CellRun{}
	for from, to := range renamed {
		if last, has := a.record.Ran[from]; has {
			ran[to] = last
			delete(a.record.Ran, from)
		}
	}
	maps.Copy(a.record.Ran, ran)
	a.needs = nil
	a.outputs.markAll()
}

// adaptPlan takes over the notebook's new cells, sources and order.
func (a *advance) adaptPlan() {
	run, reached := a.run, 0
	for i := range run.Plan {
		c := &run.Plan[i]
		now, waits := a.view.byHandle[c.Handle], c.pending() || c.Status == CellSkipped
		if now == nil {
			continue
		}
		c.Index, c.Title = now.index, now.title
		if !waits || c.Status == CellRunning {
			reached = max(reached, now.index)
		}
		switch {
		case waits:
			c.Source = now.source
		case now.source != c.Source:
			a.addNote("cell %d (id %s) was edited after it had run: it is dirty", c.Index, c.Handle)
		}
	}
	// The cells of a selection that names a deleted one are not chosen anew; dirty names all from the
	// cell with which the run began.
	chosen, _ := a.choose(func(c *cell) bool { return len(run.Plan) > 0 && run.Plan[0].Handle == c.handle })
	for _, c := range chosen {
		switch {
		case run.cell(c.handle) != nil:
		case c.index < reached:
			a.addNote("the new cell %d (id %s) is above cells that have run: it was not run", c.index, c.handle)
		default:
			run.plan(c)
		}
	}
	slices.SortStableFunc(run.Plan, func(a, b CellRecord) int { return cmp.Compare(a.Index, b.Index) })
}

// maxEdits is how often a call edits the job again: each time, another step may have begun meanwhile.
const maxEdits = 5

// editJob replaces the steps of the job that have not begun by those that the notebook has now. If
// it is not done, another step has begun meanwhile.
func (a *advance) editJob(ctx context.Context) (done bool, err error) {
	job := a.run.Job
	j, err := a.vm.Job(ctx, job.JobID, contract.MaxJobSteps, 0)
	switch {
	case jobs.IsRefused(err) || err == nil && j.State.Ended(): // reading the job says what became of it
		return true, nil
	case err != nil:
		return false, err
	case !job.isAt(j.Revision) || j.Next < 0 || j.Next > len(job.Steps):
		a.addNote("another program edited the run on the VM: cells of the notebook that the run lacks will run after it has ended")
		return true, nil
	}
	begun, left, from := map[int]string{}, job.Steps[j.Next:], ""
	for _, s := range job.Steps[:j.Next] {
		begun[s.Cell] = s.ID
	}
	sent, steps := a.stepsFor(begun)
	if slices.Equal(steps, left) {
		return true, nil
	}
	if len(left) > 0 {
		from = left[0].ID
	}
	job.Revision, job.Proposed = j.Revision, slices.Concat(job.Steps[:j.Next], steps)
	if err := a.save(); err != nil {
		return false, err
	}
	err = job.Edit(ctx, a.vm, from, sent)
	switch refused, _ := errors.AsType[*contract.Error](err); {
	case err == nil:
		return job.isAt(job.Revision), nil
	case !jobs.IsRefused(err):
		return false, err
	case jobs.IsGone(err):
	case refused.Code == contract.CodeConflict && a.edits < maxEdits:
		a.edits++
		job.Proposed = nil
		return false, nil
	default:
		a.addNote("the VM refused the notebook's edits, so its cells run as they were sent: %s", plain.Line(err.Error()))
	}
	job.Proposed = nil
	return true, nil
}

// isAt reports whether Steps are those of the job's present revision. It takes over the edit that
// was about to be sent if that has arrived.
func (j *JobRecord) isAt(revision int) bool {
	if revision == j.At+1 && j.Proposed != nil {
		j.Steps, j.Proposed, j.At = j.Proposed, nil, revision
	}
	return revision == j.At
}
