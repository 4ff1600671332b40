package nbrun

import (
	"slices"
	"strings"
)

// followHandles finds planned cells under their new handles. Editors give cells other ids when they
// save; where cells have no ids, handles contain indexes, which change when a cell is inserted
// or deleted above. A cell is taken for the vanished one with the same source; several with one
// source keep their order. Without this, cells that have run would count as deleted, and run
// again as new ones.
func (a *advance) followHandles() {
	var sources []string
	for i := range a.run().Plan {
		if c := &a.run().Plan[i]; a.view.byHandle[c.Handle] == nil && !slices.Contains(sources, c.Source) {
			sources = append(sources, c.Source)
		}
	}
	renamed := map[string]string{}
	for _, source := range sources {
		before, now := a.handlesBefore(source), a.handlesNow(source)
		for i := range min(len(before), len(now)) {
			if before[i] != now[i] {
				renamed[before[i]] = now[i]
			}
		}
	}
	if len(renamed) > 0 {
		a.record.rename(renamed)
		a.outputs.rename(renamed)
		a.adaptPlan(nil, nil)
	}
}

// isPlace reports whether a handle has the form #index-hash8.
func isPlace(handle string) bool { return strings.HasPrefix(handle, "#") }

// handlesBefore returns the handles of planned cells with a source that may have another one now.
func (a *advance) handlesBefore(source string) (handles []string) {
	for i := range a.run().Plan {
		c := &a.run().Plan[i]
		if c.Source == source && (isPlace(c.Handle) || a.view.byHandle[c.Handle] == nil) {
			handles = append(handles, c.Handle)
		}
	}
	return handles
}

// handlesNow returns the handles that cells with this source may have got.
func (a *advance) handlesNow(source string) (handles []string) {
	for _, c := range a.view.cells {
		if c.source == source && (isPlace(c.handle) || a.run().cell(c.handle) == nil) {
			handles = append(handles, c.handle)
		}
	}
	return handles
}

// rename gives cells of the record their new handles.
func (r *Record) rename(renamed map[string]string) {
	change := func(handle *string) {
		if to, ok := renamed[*handle]; ok {
			*handle = to
		}
	}
	run := &r.Run
	for i := range run.Plan {
		change(&run.Plan[i].Handle)
		for k := range run.Plan[i].SkippedBecause {
			change(&run.Plan[i].SkippedBecause[k].Cell)
		}
	}
	run.places = nil
	for _, f := range run.Flights {
		change(&f.Handle)
	}
	for i := range r.Life.Runs {
		change(&r.Life.Runs[i].Handle)
	}
	change(&run.Saving)
	if run.Saved != nil {
		change(&run.Saved.Cell)
	}
	move(r.History, renamed)
}

// move gives the values of a map their new keys.
func move[V any](all map[string]V, renamed map[string]string) {
	moved := map[string]V{}
	for from, to := range renamed {
		if v, ok := all[from]; ok {
			moved[to] = v
			delete(all, from)
		}
	}
	for to, v := range moved {
		all[to] = v
	}
}

// rename gives cells their new handles. They are written again: a write meanwhile found none.
func (o *outputs) rename(renamed map[string]string) {
	move(o.cells, renamed)
	for _, to := range renamed {
		if c := o.cells[to]; c != nil {
			c.handle = to
			o.mark(c)
		}
	}
}
