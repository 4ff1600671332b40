package nbrun

import (
	"context"
	"errors"
	"slices"
	"strings"

	"colabrelay/relay/dataflow"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// dryRun makes the plan of a new run: it submits no cell and writes no file.
func (a *advance) dryRun(ctx context.Context) (Outcome, error) {
	if old := a.recorded; old != nil {
		a.addNote("an unfinished run of this notebook exists: %s; the same call without dry_run continues it if its arguments are the same", old.summary())
	}
	k, err := a.vm.CurrentKernel(ctx)
	if err != nil {
		return Outcome{}, err
	}
	a.enter(k.KernelID)
	a.spec.Save = SaveNone // parameters are injected in memory only
	if err := a.look(); err != nil {
		return Outcome{}, err
	}
	chosen, err := a.choose(ctx)
	if err != nil {
		return Outcome{}, err
	}
	facts, err := a.factsForWarnings(ctx)
	if err != nil {
		return Outcome{}, err
	}
	p, err := a.vm.Probe(ctx)
	if err != nil {
		return Outcome{}, err
	}
	return a.describePlan(chosen, facts, p), nil
}

// factsForWarnings is facts, but the kernel may be busy: then there are fewer warnings.
func (a *advance) factsForWarnings(ctx context.Context) ([]*dataflow.Facts, error) {
	facts, err := a.facts(ctx, a.view.cells)
	if errors.Is(err, errEnough) {
		a.addNote("the kernel is busy, so the cells could not be checked for what they need")
		return make([]*dataflow.Facts, len(a.view.cells)), nil
	}
	return facts, err
}

// describePlan says of each cell whether it would run.
func (a *advance) describePlan(chosen []*cell, facts []*dataflow.Facts, p contract.Probe) Outcome {
	out := Outcome{Status: StatusPlanned, Counts: map[CellStatus]int{}}
	if len(chosen) == 0 {
		a.noteNothing()
	}
	warnings := a.warnings(facts, p)
	for i, c := range a.view.cells {
		planned := PlannedCell{CellID: c.handle, Index: c.index, Title: c.title, Run: slices.Contains(chosen, c)}
		switch {
		case !planned.Run:
			planned.Why = a.notSelected(i)
		case a.passedOver(c) != "":
			planned.Run, planned.Why = false, a.passedOver(c)
		default:
			planned.Why = a.selectedBecause(i)
		}
		if planned.Run {
			planned.Warnings = warnings[c.handle]
		}
		out.Plan = append(out.Plan, planned)
	}
	if a.dirt != nil && len(a.dirt.Linger) > 0 {
		a.addNote("the kernel still has %s, which no cell makes any more", plain.Line(strings.Join(a.dirt.Linger, ", ")))
	}
	out.Notes = a.notes
	return out
}

// selectedBecause says why the i-th cell of the view must run; empty if the selection names it.
func (a *advance) selectedBecause(i int) string {
	switch {
	case a.dirt == nil || i >= len(a.dirt.Reasons):
		return ""
	case a.dirt.Reasons[i] != "":
		return a.dirt.Reasons[i].Words()
	case a.dirt.Dirty[i]:
		return "a cell above it must run"
	}
	return ""
}

// notSelected says why the run leaves out the i-th cell of the view.
func (a *advance) notSelected(i int) string {
	if a.dirt != nil && i < len(a.dirt.Reasons) && a.dirt.Reasons[i] == "" {
		return "it is in step with the kernel"
	}
	return "it is not selected"
}

// noteNothing notes that the run selects no cell.
func (a *advance) noteNothing() {
	if a.dirt != nil && len(a.view.cells) > 0 {
		a.addNote("every cell is in step with the kernel: there is nothing to run")
		return
	}
	a.addNote("no cell is selected: there is nothing to run")
}

// warnings says, by cell, what Python cannot read, and what cells need that this VM does not have.
func (a *advance) warnings(facts []*dataflow.Facts, p contract.Probe) map[string][]string {
	all := map[string][]string{}
	cells := make([]dataflow.Cell, len(a.view.cells))
	for i, c := range a.view.cells {
		cells[i] = dataflow.Cell{ID: c.handle, Facts: facts[i]}
		if facts[i] != nil && facts[i].Problem != "" {
			all[c.handle] = append(all[c.handle], "which names the cell uses is not known: "+plain.Line(facts[i].Problem))
		}
	}
	for _, d := range dataflow.Unmet(cells, dataflow.Machine{GPU: p.GPU.Available, TPU: p.TPU.Available}) {
		all[d.Cell] = append(all[d.Cell], plain.Line(d.Text))
	}
	return all
}
