package nbrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"colabrelay/relay/notebook"
	"colabrelay/relay/suggest"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// look reads the notebook if it changed, or for the first time.
func (r *Run) look() error {
	d, err := r.work.Read()
	if err != nil || r.view != nil && r.view.document == d {
		return err
	}
	own := *d
	if r.spec.Unsaved {
		if _, err := r.values.Inject(&own); err != nil {
			return err
		}
	}
	r.view = newView(&own, r.values)
	r.view.document = d
	return nil
}

// makeCopy creates the file at Spec.OutputPath, once in a run. Another file that is there already is
// refused.
func (a *advance) makeCopy() error {
	if a.run.Copied {
		return nil
	}
	d, err := a.file.Read()
	if err != nil {
		return err
	}
	err = notebook.CreateFile(a.spec.OutputPath, d.Bytes())
	switch {
	case errors.Is(err, fs.ErrExist) && !a.isCopyOf(d): // a call that was killed may have made it
		return fmt.Errorf("%s: %w: name another one for the outputs, or delete this one", a.spec.OutputPath, ErrOutputPath)
	case err != nil && !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("creating the copy for the outputs: %w", err)
	}
	a.run.Copied = true
	return nil
}

// isCopyOf reports whether the file at Spec.OutputPath has the notebook's own bytes.
func (a *advance) isCopyOf(d *notebook.Document) bool {
	there, err := bounded.ReadFile(a.spec.OutputPath, int64(len(d.Bytes())))
	return err == nil && bytes.Equal(there, d.Bytes())
}

// plan chooses the cells of a new run.
func (a *advance) plan(ctx context.Context) error {
	if err := a.writeParameters(ctx); err != nil {
		return err
	}
	chosen, err := a.planned()
	if err != nil {
		return err
	}
	for _, c := range chosen {
		a.run.plan(c)
	}
	a.run.Planned, a.run.View = true, a.view.digest
	return nil
}

// writeParameters gives each cell an id, and injects the cell of the parameters.
func (a *advance) writeParameters(ctx context.Context) error {
	if a.spec.Unsaved {
		return nil
	}
	var notes []string
	change, err := a.work.Edit(ctx, "", func(d *notebook.Document) error {
		notes = d.RepairIDs()
		warnings, err := a.values.Inject(d)
		notes = append(notes, warnings...)
		return err
	})
	a.addNotes(change.Notes)
	a.addNotes(notes)
	if err != nil {
		return err
	}
	return a.look()
}

// planned returns the cells of a new run, in order. What does not fit into a job is refused, before
// anything runs.
func (a *advance) planned() ([]*cell, error) {
	clean := a.record.clean(a.view.cells)
	chosen, err := a.choose(func(c *cell) bool { return !clean[c.handle] })
	switch {
	case err != nil:
		return nil, err
	case len(chosen) == 0 && a.wantsDirty() && len(a.view.cells) > 0:
		a.addNote("every cell has run in this kernel as it is now: there is nothing to run")
	case len(chosen) == 0:
		a.addNote("no cell is selected: there is nothing to run")
	}
	size := 0
	for _, c := range chosen {
		size += len(c.code)
	}
	switch {
	case len(chosen) > contract.MaxJobSteps:
		return nil, wrong("cells", "there are %d cells, and one run can have at most %d: run the notebook in parts", len(chosen), contract.MaxJobSteps)
	case size > contract.MaxJobCode:
		return nil, wrong("cells", "the cells have %.2f MiB of code, and one run can have at most %d MiB: run the notebook in parts", float64(size)/(1<<20), contract.MaxJobCode>>20)
	}
	return chosen, nil
}

// choose returns the cells that the run selects, in order.
func (a *advance) choose(dirty func(*cell) bool) ([]*cell, error) {
	selected, err := selectCells(a.spec.Cells, a.view.cells, dirty)
	if err != nil {
		return nil, err
	}
	var chosen []*cell
	for _, c := range a.view.cells {
		if injected := len(a.values.Names()) > 0 && c.has(tagInjected); !injected && !slices.Contains(selected, c) {
			continue
		}
		chosen = append(chosen, c)
		for _, tag := range c.wrong {
			a.addNote("cell %d (id %s) has the tag %.40q, which is not a number such as timeout=3600 in seconds or retries=2, at most %d: it has no effect", c.index, c.handle, tag, MaxRetries)
		}
	}
	return chosen, nil
}

// dryRun makes the plan of a new run: it submits no cell and writes no file.
func (a *advance) dryRun(ctx context.Context) (Outcome, error) {
	k, err := a.currentKernel(ctx)
	if err != nil {
		return Outcome{}, err
	}
	a.enter(k.KernelID)
	a.spec.Unsaved = true // parameters are injected in memory only
	if err := a.look(); err != nil {
		return Outcome{}, err
	}
	chosen, err := a.planned()
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Status: StatusPlanned, Notes: a.notes}
	clean := a.record.clean(a.view.cells)
	for _, c := range a.view.cells {
		p := PlannedCell{CellID: c.handle, Index: c.index, Title: c.title}
		selected, state := slices.Contains(chosen, c), a.record.state(c)
		p.Why = a.record.passes(c)
		p.Run = selected && p.Why == ""
		switch {
		case !selected && clean[c.handle] && a.wantsDirty():
			p.Why = "it has run in this kernel as it is now"
		case !selected:
			p.Why = "it is not selected"
		case p.Run && a.wantsDirty() && state == Clean:
			p.Why = "it, or a cell above it, is not clean"
		case p.Run && a.wantsDirty():
			p.Why = "its state is " + Words(state)
		}
		out.Plan = append(out.Plan, p)
	}
	return out, nil
}

// wantsDirty reports whether the selection depends on what has run.
func (r *Run) wantsDirty() bool { return slices.Contains(selectionParts(r.spec.Cells), selectDirty) }

// Words of a selection.
const (
	selectAll   = "all"
	selectDirty = "dirty"
	selectFrom  = "from:"
)

// selectionParts returns the parts of a selection, which commas separate; an empty selection
// means all.
func selectionParts(selection string) (parts []string) {
	for part := range strings.SplitSeq(selection, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	if parts == nil {
		return []string{selectAll}
	}
	return parts
}

// span is a range of indexes in the notebook, both ends included.
type span struct{ first, last int }

func (s span) has(c *cell) bool { return c.index >= s.first && c.index <= s.last }

// selectCells returns the cells that the selection names, in the order of the notebook: all; dirty
// (from the first dirty cell to the end); ids; ranges of indexes such as 3-7, both ends included;
// from:ID; and several of these separated by commas. An id goes before an index that looks like it.
// The error is an ErrSpec that says what to write instead.
func selectCells(selection string, cells []*cell, dirty func(*cell) bool) (chosen []*cell, err error) {
	var spans []span
	for _, part := range selectionParts(selection) {
		s, err := spanOf(part, cells, dirty)
		if err != nil {
			return nil, wrong("cells", "%v", err)
		}
		spans = append(spans, s)
	}
	for _, c := range cells {
		if slices.ContainsFunc(spans, func(s span) bool { return s.has(c) }) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// spanOf returns which cells one part of a selection names.
func spanOf(part string, cells []*cell, dirty func(*cell) bool) (span, error) {
	start, isFrom := strings.CutPrefix(part, selectFrom)
	start = strings.TrimSpace(start)
	s, isRange := indexes(start)
	at := slices.IndexFunc(cells, func(c *cell) bool { return c.handle == start })
	switch {
	case at >= 0:
		s = span{cells[at].index, cells[at].index}
	case part == selectAll:
		return span{0, math.MaxInt}, nil
	case part == selectDirty:
		if at = slices.IndexFunc(cells, dirty); at < 0 {
			return span{0, -1}, nil
		}
		return span{cells[at].index, math.MaxInt}, nil
	case !isRange || isFrom && s.first != s.last:
		return s, unknownCell(start, cells)
	}
	if isFrom {
		s.last = math.MaxInt
	}
	switch {
	case slices.ContainsFunc(cells, s.has):
		return s, nil
	case len(cells) == 0:
		return s, fmt.Errorf("%q names no code cell: the notebook has none that is not blank", part)
	}
	return s, fmt.Errorf("%q names no code cell that can run: indexes count from 0, over all cells, and the code cells are from %d to %d", part, cells[0].index, cells[len(cells)-1].index)
}

// indexes reads an index, or two with a hyphen between them.
func indexes(part string) (s span, ok bool) {
	begin, end, isRange := strings.Cut(part, "-")
	if !isRange {
		end = begin
	}
	first, err := strconv.Atoi(strings.TrimSpace(begin))
	last, wrong := strconv.Atoi(strings.TrimSpace(end))
	return span{first, last}, err == nil && wrong == nil && first >= 0
}

// unknownCell says that no code cell has this id, and which id may be meant.
func unknownCell(handle string, cells []*cell) error {
	known := []string{selectAll, selectDirty}
	for _, c := range cells {
		known = append(known, c.handle)
	}
	return fmt.Errorf("no code cell has the id %.80q%s: use all, dirty, ids, indexes counted from 0 such as 4 or 3-7 (7 is included), or from:ID, and commas between several of them", handle, suggest.Meant(handle, known))
}
