package nbrun

import (
	"context"
	"fmt"
	"slices"
	"sort"
)

// changed reports whether the notebook's code was edited since the run last compared it. A
// notebook that can't be read just now is compared later.
func (a *advance) changed() bool {
	if a.run().Stopping != "" || a.look() != nil || a.view.digest == a.run().View {
		return false
	}
	a.followHandles()
	return true
}

// followChanges adapts the run to edits of the notebook, as Spec.OnChange says.
func (a *advance) followChanges(ctx context.Context) error {
	if err := a.look(); err != nil {
		return err
	}
	run := a.run()
	if a.view.digest == run.View || run.Stopping != "" {
		return nil
	}
	a.followHandles()
	added, err := a.added()
	if err != nil {
		return err
	}
	edited := a.editedCells()
	affected := len(added) > 0 || len(edited) > 0 || a.moved()
	switch {
	case !affected:
	case a.spec.OnChange == RefuseChanged:
		return fmt.Errorf("%w, which this run is to refuse: %s", ErrChanged, changesText(added, edited))
	case a.spec.OnChange == RestartChanged:
		return a.planAgain(ctx)
	default:
		if err := a.withdrawQueued(ctx, edited); err != nil {
			return err
		}
		a.adaptPlan(added, edited)
	}
	run.View = a.view.digest
	return nil
}

func changesText(added []*cell, edited []*CellRecord) string {
	switch {
	case len(edited) > 0:
		return fmt.Sprintf("cell %d (%s) was edited or deleted", edited[0].Index, edited[0].Handle)
	case len(added) > 0:
		return fmt.Sprintf("cell %d (%s) is new", added[0].index, added[0].handle)
	}
	return "cells were moved"
}

// added returns the cells that the selection names and the plan does not have.
func (a *advance) added() (all []*cell, err error) {
	if needsFacts(a.spec.Cells) {
		return nil, nil
	}
	candidates := make([]candidate, len(a.view.cells))
	for i, c := range a.view.cells {
		candidates[i] = candidate{Index: c.index, Handle: c.handle}
	}
	places, err := selectCells(a.spec.Cells, candidates)
	if err != nil { // it names a cell that was deleted
		return nil, nil
	}
	for _, i := range places {
		if c := a.view.cells[i]; a.run().cell(c.handle) == nil {
			all = append(all, c)
		}
	}
	return all, nil
}

// editedCells returns the planned cells whose source is another one now, or that were deleted.
func (a *advance) editedCells() (all []*CellRecord) {
	for i := range a.run().Plan {
		c := &a.run().Plan[i]
		if now := a.view.byHandle[c.Handle]; now == nil && c.pending() || now != nil && now.source != c.Source {
			all = append(all, c)
		}
	}
	return all
}

// moved reports whether the planned cells have another order now.
func (a *advance) moved() bool {
	before := -1
	for i := range a.run().Plan {
		now := a.view.byHandle[a.run().Plan[i].Handle]
		if now == nil {
			continue
		}
		if now.index < before {
			return true
		}
		before = now.index
	}
	return false
}

// edited reports whether the cell of a flight has another source now than the one that ran, or
// was deleted.
func (a *advance) edited(f *Flight) bool {
	now := a.view.byHandle[f.Handle]
	return now == nil || now.source != f.Source
}

// withdrawQueued cancels the queued cells, because edits may have changed their sources or
// their order. The first one stays if it is not known to be queued, or was not edited.
func (a *advance) withdrawQueued(ctx context.Context, edited []*CellRecord) error {
	flying := a.flying()
	if len(flying) == 0 {
		return nil
	}
	from, first := 1, a.run().cell(flying[0].Handle)
	if first.Status != CellRunning && slices.Contains(edited, first) {
		from = 0
	}
	for from < len(flying) && a.hasStarted(ctx, flying[from]) {
		from++
	}
	return a.withdraw(ctx, from, a.cancelQueued)
}

// hasStarted asks the VM, which may be ahead of what was read: a cell that runs is not queued.
func (a *advance) hasStarted(ctx context.Context, f *Flight) bool {
	if f.ExecutionID == "" {
		return false
	}
	e, err := a.vm.Execution(ctx, f.ExecutionID, 0, 0, 1)
	return err == nil && e.KernelID != ""
}

// adaptPlan takes over the notebook's new cells, sources and order.
func (a *advance) adaptPlan(added []*cell, edited []*CellRecord) {
	for _, c := range edited {
		if !c.pending() && c.Status != CellSkipped {
			a.addNote("cell %d (%s) was edited after it had run: it is dirty", c.Index, c.Handle)
		}
	}
	reached := a.reached()
	plan := a.run().Plan
	for _, c := range added {
		if c.index < reached {
			a.addNote("the new cell %d (%s) is above cells that have run: it was not run", c.index, c.handle)
			continue
		}
		plan = append(plan, newCellRecord(c))
	}
	for i := range plan {
		c := &plan[i]
		if now := a.view.byHandle[c.Handle]; now != nil {
			c.Index, c.Title = now.index, now.title
			if c.pending() || c.Status == CellSkipped {
				c.Source = now.source
			}
		}
	}
	sort.SliceStable(plan, func(i, j int) bool { return plan[i].Index < plan[j].Index })
	a.run().Plan = plan
	if a.run().firstFailed() != nil {
		a.run().Undecided = a.spec.OnError == SkipDependents
	}
}

// reached is the index of the last cell that has started.
func (a *advance) reached() (index int) {
	for i := range a.run().Plan {
		c := &a.run().Plan[i]
		now := a.view.byHandle[c.Handle]
		if now != nil && (!c.pending() && c.Status != CellSkipped || c.Status == CellRunning) {
			index = max(index, now.index)
		}
	}
	return index
}

// planAgain starts the run again with the edited notebook.
func (a *advance) planAgain(ctx context.Context) error {
	if err := a.abandon(ctx); err != nil {
		return err
	}
	run := a.run()
	run.Plan, run.Flights, run.Planned, run.Retries, run.RetryAt, run.Undecided = nil, nil, false, 0, nil, false
	run.Saved, run.Saving, run.Restoring = nil, "", false
	a.addNote("the notebook was edited: the run starts again, as was asked for")
	return a.plan(ctx)
}
