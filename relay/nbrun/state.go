package nbrun

import (
	"slices"
	"time"

	"colabrelay/relay/notebook"
	"colabrelay/relay/parameters"
)

// ran records that a cell ran in the present kernel.
func (r *Record) ran(c *CellRecord, step Step, s CellStatus) {
	r.Runs++
	r.Ran[c.Handle] = CellRun{step.Source, step.Sent, r.KernelID, s, r.Runs}
}

// state is the state of a cell, whatever other cells did.
func (r *Record) state(c *cell) State {
	planned := r.Run.cell(c.handle)
	switch {
	case r.ofCell(c.handle) != nil, r.Run.Job != nil && planned != nil && planned.Status == CellRunning:
		return Running
	case r.Run.Job != nil && planned != nil && planned.pending():
		return Queued
	}
	return r.stateOfLast(c.handle, c.source)
}

// stateOfLast is the state by the cell's last run that has ended.
func (r *Record) stateOfLast(handle, source string) State {
	last, ran := r.Ran[handle]
	switch {
	case !ran:
		return NeverRun
	case last.KernelID != r.KernelID:
		return Dirty
	case last.Status.Failed():
		return Failed
	case last.Source != source:
		return Dirty
	}
	return Clean
}

// Meet tells a loaded record which kernel its runtime has, and since when that is known: if the
// kernel is newer than what the record says, no cell has run in it.
func (r *Record) Meet(kernelID string, since time.Time) {
	if kernelID != "" && since.After(r.UpdatedAt) {
		r.KernelID = kernelID
	}
}

// ofCell returns the run of a single cell that has not been answered; nil for none.
func (r *Record) ofCell(handle string) *RunRecord {
	i := slices.IndexFunc(r.Cells, func(one *RunRecord) bool { return one.Plan[0].Handle == handle })
	if i < 0 {
		return nil
	}
	return r.Cells[i]
}

// States returns the state of each cell of a document; of cells that can't run, it is empty.
func (r *Record) States(d *notebook.Document) []State {
	all, cells := make([]State, d.Len()), newView(d, &parameters.Values{}).cells
	for i, s := range r.states(cells) {
		all[cells[i].index] = s
	}
	return all
}

// states returns the states of cells in their order. One that ran before a cell above it is dirty.
func (r *Record) states(cells []*cell) []State {
	all, above := make([]State, len(cells)), 0
	for i, c := range cells {
		last := r.Ran[c.handle]
		if all[i] = r.state(c); all[i] == Clean && last.Number < above {
			all[i] = Dirty
		}
		if last.KernelID == r.KernelID {
			above = max(above, last.Number)
		}
	}
	return all
}

// clean returns which cells have succeeded in the present kernel as they are now, with their
// parameters, and after all cells above them.
func (r *Record) clean(cells []*cell) map[string]bool {
	clean := map[string]bool{}
	for i, s := range r.states(cells) {
		c := cells[i]
		clean[c.handle] = s == Clean && r.Ran[c.handle].Sent == c.sent
	}
	return clean
}
