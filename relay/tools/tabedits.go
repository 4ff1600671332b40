package tools

import (
	"context"
	"slices"

	"colabrelay/relay/notebook"
)

// Notes about edits of the notebook in a tab.
const (
	noLockNote   = "Colab's page has no lock: an edit that a person makes in the same moment can be overwritten"
	surpriseNote = "the notebook differs from what this edit alone makes of it: somebody may have edited it at the same time; look at it with get_cells"
)

// editTab does an edit of the notebook in the tab, or only tries it. The page can only be asked to
// edit: whether it did so shows when the cells are read again.
func (c *call) editTab(ctx context.Context, args editArgs, e cellEdit) (Edited, *Problem) {
	select { // of the calls of this relay, one edits at a time
	case c.tabEditing <- struct{}{}:
		defer func() { <-c.tabEditing }()
	case <-ctx.Done():
		return Edited{}, c.notebookProblem(notebook.ErrBusy)
	}
	before, problem := c.readTab(ctx)
	if problem != nil {
		return Edited{}, problem
	}
	if args.Digest != "" && args.Digest != tabDigest(before.doc) {
		return Edited{}, errTabChanged
	}
	planned := *before.doc // edits write new bytes
	act, err := e.change(&planned)
	if err == nil && act != nil {
		err = act()
	}
	if err != nil {
		return Edited{}, c.notebookProblem(err)
	}
	after := &planned
	var notes []string
	if act != nil && (args.DryRun || args.Digest != "") { // who asks for either may rely on a lock
		notes = []string{noLockNote}
	}
	switch {
	case act == nil:
		notes = []string{"the notebook is as it was: the edit changes nothing"}
	case !args.DryRun:
		if after, problem = c.askTab(ctx, before, e); problem != nil {
			return Edited{}, problem
		}
		if !sameCells(&planned, after) {
			notes = append(notes, surpriseNote)
		}
	}
	return Edited{Digest: tabDigest(after), CellCount: after.Len(), Diff: e.diff(), Notes: notes, did: e.did(), dryRun: args.DryRun}, nil
}

// askTab asks the page for an edit and returns the notebook after it.
func (c *call) askTab(ctx context.Context, before *tabNotebook, e cellEdit) (*notebook.Document, *Problem) {
	if err := e.inTab(ctx, before); err != nil {
		return nil, c.tabProblem(err)
	}
	after, problem := c.readTab(ctx)
	if problem != nil {
		problem = problem.copy()
		problem.Message = "the page was asked for the edit, but its effect could not be read: " + problem.Message
		return nil, problem
	}
	if e.found != nil {
		e.found(after)
	}
	return after.doc, nil
}

// sameCells reports whether two notebooks have cells of the same types and sources. The page gives
// new cells ids of its own.
func sameCells(a, b *notebook.Document) bool {
	all := func(d *notebook.Document) (cells [][2]string) {
		for i := range d.Len() {
			cell := d.Cell(i)
			cells = append(cells, [2]string{string(cell.Type), cell.Source})
		}
		return cells
	}
	return slices.Equal(all(a), all(b))
}
