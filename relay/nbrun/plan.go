package nbrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"colabrelay/relay/notebook"
)

// look reads the notebook if it changed, or for the first time.
func (r *Run) look() error {
	d, err := r.work.Read()
	if err != nil {
		return err
	}
	if r.view != nil && r.view.document == d {
		return nil
	}
	read := d
	if r.spec.Save == SaveNone && len(r.values.Names()) > 0 {
		own := *d
		if _, err := r.values.Inject(&own); err != nil {
			return err
		}
		d = &own
	}
	r.view = newView(d, r.values)
	r.view.document = read
	return nil
}

// makeCopy creates the file at Spec.OutputPath, once in a run.
func (a *advance) makeCopy() error {
	run := a.run()
	if _, err := os.Lstat(a.spec.OutputPath); err == nil {
		return a.checkCopy()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if run.Planned {
		return fmt.Errorf("%s: the copy with the outputs of this run was deleted: start a new run with another file for them", a.spec.OutputPath)
	}
	d, err := a.file.Read()
	if err != nil {
		return err
	}
	run.Copied = true
	a.record.Work = a.spec.OutputPath
	if err := a.save(); err != nil {
		return err
	}
	if err := notebook.CreateFile(a.spec.OutputPath, d.Bytes()); err != nil {
		return fmt.Errorf("creating the copy for the outputs: %w", err)
	}
	run.Created = true
	return a.save()
}

// checkCopy refuses a file at Spec.OutputPath that is not the run's. If an earlier call ended
// while it made the copy, only a file with the notebook's own bytes is taken for it.
func (a *advance) checkCopy() error {
	run := a.run()
	if run.Created || run.Copied && run.Planned {
		return nil
	}
	if run.Copied {
		there, err := a.copied()
		d, readErr := a.file.Read()
		if err == nil && readErr == nil && bytes.Equal(there.Bytes(), d.Bytes()) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w: name another one for the outputs, or delete this one", a.spec.OutputPath, ErrOutputPath)
}

// copied reads the file at Spec.OutputPath.
func (a *advance) copied() (*notebook.Document, error) {
	file, err := notebook.OpenFile(a.spec.OutputPath, a.dir)
	if err != nil {
		return nil, err
	}
	return file.Read()
}

// plan chooses the cells of a new run.
func (a *advance) plan(ctx context.Context) error {
	if err := a.writeParameters(ctx); err != nil {
		return err
	}
	chosen, err := a.choose(ctx)
	if err != nil {
		return err
	}
	run := a.run()
	for _, c := range chosen {
		run.Plan = append(run.Plan, newCellRecord(c))
	}
	run.Planned, run.View, run.places = true, a.view.digest, nil
	if len(run.Plan) == 0 {
		a.noteNothing()
	}
	return nil
}

// writeParameters gives each cell an id, and injects the cell of the parameters.
func (a *advance) writeParameters(ctx context.Context) error {
	if a.spec.Save == SaveNone {
		return a.look()
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

// choose returns the cells that the run selects, in order.
func (a *advance) choose(ctx context.Context) ([]*cell, error) {
	candidates := make([]candidate, len(a.view.cells))
	for i, c := range a.view.cells {
		candidates[i] = candidate{Index: c.index, Handle: c.handle}
	}
	if needsFacts(a.spec.Cells) {
		sync, err := a.sync(ctx)
		if err != nil {
			return nil, err
		}
		a.dirt = &sync
		for i := range candidates {
			candidates[i].Dirty, candidates[i].Stale = sync.Dirty[i], sync.Stale[i]
		}
	}
	places, err := selectCells(a.spec.Cells, candidates)
	if err != nil {
		return nil, err
	}
	if err := a.checkForce(); err != nil {
		return nil, err
	}
	var chosen []*cell
	for i, c := range a.view.cells {
		injected := len(a.values.Names()) > 0 && c.has(tagInjected)
		if injected || slices.Contains(places, i) {
			chosen = append(chosen, c)
			a.noteTimeout(c)
		}
	}
	return chosen, nil
}

// checkForce refuses ids in force that no cell has.
func (a *advance) checkForce() error {
	for _, handle := range a.forced() {
		if a.view.byHandle[handle] == nil {
			return wrong("force", "no code cell has the id %.80q", handle)
		}
	}
	return nil
}

// forced returns the handles that Spec.Force names.
func (r *Run) forced() []string {
	return strings.FieldsFunc(r.spec.Force, func(c rune) bool { return c == ',' || c == ' ' })
}

// isForced reports whether a cell runs whatever failed before.
func (r *Run) isForced(c *cell) bool {
	return c.has(tagForce) || slices.Contains(r.forced(), c.handle)
}

func newCellRecord(c *cell) CellRecord {
	return CellRecord{
		Handle: c.handle, Index: c.index, Title: c.title, Source: c.source, Status: CellNotRun, Attempts: []Attempt{},
	}
}
