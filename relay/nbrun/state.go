package nbrun

import (
	"context"
	"slices"
	"strings"

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
	var runs []dataflow.Run
	for _, ran := range a.record.Life.Runs {
		of := dataflow.Run{Cell: ran.Handle, Outcome: outcomes[ran.Status]}
		if f, known := a.record.Facts[ran.Sent]; known {
			of.Facts = &f
		}
		runs = append(runs, of)
	}
	return dataflow.Sync(cells, runs), nil
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

// States returns the state of each cell of a document; of cells that can't run, it is empty. A
// cell is also dirty if a cell above it ran after it.
func (r *Record) States(d *notebook.Document) []State {
	at := map[string]int{}
	for i, ran := range r.Life.Runs {
		at[ran.Handle] = i
	}
	states := make([]State, d.Len())
	newest := -1
	for i := range states {
		c := d.Cell(i)
		if c.Type != notebook.Code || strings.TrimSpace(c.Source) == "" {
			continue
		}
		states[i] = r.State(c.Handle, c.Source)
		ran, known := at[c.Handle]
		if states[i] == Clean && ran < newest {
			states[i] = Dirty
		}
		if known {
			newest = max(newest, ran)
		}
	}
	return states
}
