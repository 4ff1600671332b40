package nbrun

import (
	"context"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/dataflow"
	"colabrelay/relay/notebook"
)

// State returns the state of a cell with this handle and source, as far as the record knows. It
// does not know the order of the cells; States does.
func (r *Record) State(handle, source string) State {
	last, ran := r.History[handle]
	switch {
	case r.isRunning(handle):
		return Running
	case !ran:
		return NeverRun
	case last.KernelID != r.Life.KernelID:
		return Dirty
	case last.Status.failed():
		return Failed
	case last.Source != hash(source):
		return Dirty
	}
	return Clean
}

// Meet tells a loaded record which kernel its runtime has, and since when that is known: if the
// kernel is newer than what the record says, no cell has run in it.
func (r *Record) Meet(kernelID string, since time.Time) {
	if kernelID != "" && kernelID != r.Life.KernelID && since.After(r.UpdatedAt) {
		r.enter(kernelID, r.Life.InstanceID)
	}
}

// isRunning reports whether a cell is in flight.
func (r *Record) isRunning(handle string) bool {
	inFlight := func(f *Flight) bool { return f.Handle == handle && !f.Ended }
	return slices.ContainsFunc(r.Run.Flights, inFlight) ||
		slices.ContainsFunc(r.Singles, func(s *Single) bool { return inFlight(&s.Flight) })
}

// sync compares the notebook with what ran in the present kernel.
func (a *advance) sync(ctx context.Context) (dataflow.Plan, error) {
	facts, err := a.facts(ctx, a.view.cells)
	if err != nil {
		return dataflow.Plan{}, err
	}
	cells := make([]dataflow.Cell, len(a.view.cells))
	for i, c := range a.view.cells {
		cells[i] = dataflow.Cell{ID: c.handle, Facts: facts[i]}
	}
	return dataflow.Sync(cells, a.record.runs()), nil
}

// runs returns what ran in the present kernel, as dataflow sees it.
func (r *Record) runs() (runs []dataflow.Run) {
	for _, ran := range r.Life.Runs {
		runs = append(runs, dataflow.Run{Cell: ran.Handle, Outcome: outcomes[ran.Status], Facts: r.factsOf(ran.Sent)})
	}
	return runs
}

// cleanSince reports whether a cell has succeeded in this kernel with its present source.
func (r *Record) cleanSince(c *cell) bool {
	for i := len(r.Life.Runs) - 1; i >= 0; i-- {
		if ran := r.Life.Runs[i]; ran.Handle == c.handle {
			return ran.Source == c.source && (ran.Status == CellSucceeded || ran.Status == CellExpectedFailure)
		}
	}
	return false
}

// States returns the state of each cell of a document; of cells that can't run, it is empty. With
// the facts of all code, it agrees with sync. Without them, a cell is also dirty if its text
// changed at all, or if a cell above it ran after it.
func (r *Record) States(d *notebook.Document) []State {
	states := make([]State, d.Len())
	var cells []notebook.Cell
	for i := range states {
		if c := d.Cell(i); c.Type == notebook.Code && strings.TrimSpace(c.Source) != "" {
			states[i] = r.State(c.Handle, c.Source)
			cells = append(cells, c)
		}
	}
	if reasons, known := r.reasons(cells); known {
		for i, c := range cells {
			states[c.Index] = precise(states[c.Index], reasons[i])
		}
		return states
	}
	r.compareOrder(cells, states)
	return states
}

// reasons says why each cell is dirty; known is false if the facts of some code are missing.
func (r *Record) reasons(cells []notebook.Cell) (reasons []dataflow.Reason, known bool) {
	all := make([]dataflow.Cell, len(cells))
	for i, c := range cells {
		all[i] = dataflow.Cell{ID: c.Handle, Facts: r.factsOf(hash(c.Source))}
		if all[i].Facts == nil {
			return nil, false
		}
	}
	runs := r.runs()
	for _, ran := range runs {
		if ran.Facts == nil {
			return nil, false
		}
	}
	return dataflow.Sync(all, runs).Reasons, true
}

// precise replaces what State can only guess.
func precise(s State, why dataflow.Reason) State {
	switch {
	case s != Clean && s != Dirty:
		return s
	case why == "":
		return Clean
	}
	return Dirty
}

// compareOrder makes the cells dirty that ran before a cell above them.
func (r *Record) compareOrder(cells []notebook.Cell, states []State) {
	at := map[string]int{}
	for i, ran := range r.Life.Runs {
		at[ran.Handle] = i
	}
	newest := -1
	for _, c := range cells {
		ran, known := at[c.Handle]
		if states[c.Index] == Clean && ran < newest {
			states[c.Index] = Dirty
		}
		if known {
			newest = max(newest, ran)
		}
	}
}
