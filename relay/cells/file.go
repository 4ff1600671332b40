package cells

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
)

// File is the notebook in a file.
type File struct {
	*notebook.File
	Records string                                // the folder with the records of its runs
	Seen    func(runtime string) pairing.LastSeen // the kernel that was last seen of a runtime
	ByIndex bool                                  // a cell may be named by its index, as people do
}

// read returns the cells, with the states that the record of their runs and the last kernel tell.
func (f File) read(context.Context) (*snapshot, error) {
	doc, err := f.Read()
	if err != nil {
		return nil, err
	}
	s := &snapshot{doc: document{doc, f.ByIndex}, digest: doc.Digest(), path: f.Path()}
	record, err := nbrun.Load(f.Records, f.Path())
	switch {
	case err == nil:
		seen := f.Seen(record.Runtime)
		record.Meet(seen.KernelID, seen.Since)
		s.states = record.States(doc)
	case !errors.Is(err, checkpoint.ErrNotFound):
		s.notes = []string{"whether cells have run is not known: " + err.Error()}
	}
	return s, nil
}

func (f File) edit(ctx context.Context, h How, p plan) (*Edited, error) {
	var c change
	return f.Change(ctx, h, func(d *notebook.Document, e *Edited) (err error) {
		if c, err = p(document{d, f.ByIndex}); err == nil {
			err = c.fits(d)
		}
		if err != nil {
			return err
		}
		if !c.nothing() {
			e.Notes = d.RepairIDs() // which changes handles, but no index
		}
		err = c.apply(d)
		c.describe(e)
		return err
	})
}

// fits refuses a code cell of another language than the notebook's.
func (c *change) fits(d *notebook.Document) error {
	switch {
	case c.language == "" || strings.EqualFold(c.language, d.Language()):
		return nil
	case d.IsPython() && (d.Len() == 0 || strings.EqualFold(c.language, "python")):
		return nil
	}
	return fmt.Errorf("%w: the notebook's is %s, not %s", ErrLanguage, plain.Clip(d.Language(), 40), plain.Clip(c.language, 40))
}

// Change makes any edit of the file. edit describes it.
func (f File) Change(ctx context.Context, h How, edit func(d *notebook.Document, e *Edited) error) (*Edited, error) {
	var e Edited
	var tried notebook.Change
	done, err := f.File.Edit(ctx, h.Digest, func(d *notebook.Document) error {
		before := *d // edits write new bytes
		e, tried = Edited{}, notebook.Change{Before: &before, After: d}
		if err := edit(d, &e); err != nil || !h.DryRun {
			return err
		}
		return errTried
	})
	switch {
	case errors.Is(err, errTried):
		done = tried
	case errors.Is(err, context.DeadlineExceeded): // while it waited for the lock
		return nil, notebook.ErrBusy
	case err != nil:
		return nil, err
	}
	e.CellCount, e.Digest, e.DryRun = done.After.Len(), done.After.Digest(), h.DryRun
	e.Notes = append(done.Notes, e.Notes...)
	if e.Changed = !bytes.Equal(done.Before.Bytes(), done.After.Bytes()); !e.Changed {
		e.Notes = append(e.Notes, unchanged)
	}
	return &e, nil
}

// errTried ends an edit that is not to be written.
var errTried = errors.New("nothing is written")
