package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
)

// editArgs is embedded in the arguments of the tools that edit cells.
type editArgs struct {
	Path    string `json:"notebook_path" default:"" max:"4096" doc:"Local .ipynb file; empty: Colab's tab."`
	DryRun  bool   `json:"dry_run" default:"false" doc:"Only show the diff."`
	Digest  string `json:"expect_digest" default:"" max:"200" doc:"Refuse another digest."`
	Runtime string `json:"runtime_name" was:"runtime" default:"" rare:""` // makes no difference to an edit
}

func (a editArgs) runtime() string { return a.Runtime }

// Edited is the common part of the answers of the tools that edit cells.
type Edited struct {
	Digest    string   `json:"digest"` // of the file after the edit
	CellCount int      `json:"cell_count"`
	Diff      string   `json:"diff"` // unified diff of the cell's source; head and tail if it is long
	Notes     []string `json:"notes,omitempty" schema:"-"`

	did    string // what was done, or would be
	dryRun bool
}

func (e *Edited) text(b *words) {
	verb, has := "Done", "has"
	if e.dryRun {
		verb, has = "Nothing was written. The edit would be", "would have"
	}
	fmt.Fprintf(b, "%s: %s. The notebook %s %s, digest %s.\n", verb, e.did, has, plain.Count(e.CellCount, "cell"), e.Digest)
	b.notes(e.Notes)
	b.quote("diff", e.Diff)
}

// cellEdit is one edit of a notebook.
type cellEdit struct {
	create bool // the notebook may be missing
	// change finds the cell in a document and returns what changes the document then; nil if
	// nothing is to be changed. It is called again if the file changed meanwhile.
	change func(d *notebook.Document) (act func() error, err error)
	// inTab asks the page for the same edit of the tab that n was read from. It is called after
	// change and after what that returned.
	inTab func(ctx context.Context, n *tabNotebook) error
	// found, which may be nil, gets the tab's notebook after the edit.
	found func(n *tabNotebook)
	// diff and did describe what change did.
	diff func() string
	did  func() string
}

// edit does an edit, or only tries it.
func (c *call) edit(ctx context.Context, args editArgs, e cellEdit) (Edited, *Problem) {
	if c.inTab(args.Path) {
		return c.editTab(ctx, args, e)
	}
	file, problem := c.openNotebook(args.Path, e.create)
	if problem != nil {
		return Edited{}, problem
	}
	var repairs []string
	apply := func(d *notebook.Document) error {
		act, err := e.change(d)
		if err != nil || act == nil {
			return err
		}
		repairs = d.RepairIDs() // which changes handles, but no index
		return act()
	}
	change, err := notebook.Change{}, error(nil)
	if args.DryRun {
		change, err = tryEdit(file, args.Digest, apply)
	} else {
		change, err = file.Edit(ctx, args.Digest, apply)
	}
	if errors.Is(err, context.DeadlineExceeded) { // while it waited for the lock
		err = notebook.ErrBusy
	}
	if err != nil {
		return Edited{}, c.notebookProblem(err)
	}
	got := Edited{Digest: change.After.Digest(), CellCount: change.After.Len(), Diff: e.diff(), Notes: append(change.Notes, repairs...), did: e.did(), dryRun: args.DryRun}
	if bytes.Equal(change.Before.Bytes(), change.After.Bytes()) {
		got.Notes = append(got.Notes, "the notebook is as it was: the edit changes nothing")
	}
	return got, nil
}

// tryEdit is File.Edit, but writes nothing.
func tryEdit(file *notebook.File, expectDigest string, change func(*notebook.Document) error) (notebook.Change, error) {
	before, err := file.Read()
	if err != nil {
		return notebook.Change{}, err
	}
	if expectDigest != "" && expectDigest != before.Digest() {
		return notebook.Change{}, notebook.ErrChanged
	}
	after := *before // edits write new bytes
	if err := change(&after); err != nil {
		return notebook.Change{}, err
	}
	return notebook.Change{Before: before, After: &after}, nil
}
