package cells

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
)

// Tab is the notebook in Colab's tab.
type Tab struct {
	*page.Tab
	// Editing holds an element while an edit is made: of the calls of a relay, one edits at a time.
	Editing chan struct{}
}

// read returns the cells without their outputs, of which a message may not hold all.
func (t Tab) read(ctx context.Context) (*snapshot, error) {
	cells, err := t.Cells(ctx, 0, -1, false)
	if err != nil {
		return nil, err
	}
	doc, err := documentOf(cells)
	if err != nil {
		return nil, fmt.Errorf("reading the notebook in Colab's tab: %w", err)
	}
	s := &snapshot{doc: document{Document: doc}, digest: digest(doc, true), tab: t.Tab, cells: cells, states: make([]nbrun.State, len(cells))}
	for i, cell := range cells { // the page tells only which cells have no number
		if cell.ExecutionCount == nil && t.Running(cell.ID) {
			s.states[i] = nbrun.Running
		}
	}
	return s, nil
}

// documentOf returns a notebook file with these cells. Its handles are the page's ids, unless those
// are not valid in a notebook file or occur twice.
func documentOf(cells []page.Cell) (*notebook.Document, error) {
	type object map[string]any
	list := make([]object, len(cells))
	for i, c := range cells {
		list[i] = object{"cell_type": c.Type, "id": c.ID, "metadata": object{}, "source": c.Source}
		if c.Type == string(notebook.Code) {
			list[i]["execution_count"], list[i]["outputs"] = c.ExecutionCount, []any{}
		}
	}
	text, err := json.Marshal(object{"cells": list, "metadata": object{}, "nbformat": 4, "nbformat_minor": 5})
	if err != nil {
		return nil, err
	}
	return notebook.Parse(text)
}

// digest is the hexadecimal SHA-256 of the types and sources of all cells, and of their ids: the page
// gives new cells ids of its own. A run changes none of them.
func digest(doc *notebook.Document, ids bool) string {
	sum := sha256.New()
	for i := range doc.Len() {
		cell := doc.Cell(i)
		if !ids {
			cell.Handle = ""
		}
		for _, part := range []string{cell.Handle, string(cell.Type), cell.Source} {
			fmt.Fprintf(sum, "%d:%s", len(part), part)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// pageID returns the page's id of the cell at an index, by which its tools find the cell.
func (s *snapshot) pageID(at int) (string, error) {
	id := s.cells[at].ID
	for i := range s.cells {
		if i != at && s.cells[i].ID == id {
			return "", fmt.Errorf("%w: cells %d and %d", ErrSameID, min(i, at), max(i, at))
		}
	}
	return id, nil
}

// Notes about edits of the notebook in a tab.
const (
	noLockNote   = "Colab's page has no lock: an edit that a person makes in the same moment can be overwritten"
	surpriseNote = "the notebook differs from what this edit alone makes of it: somebody may have edited it at the same time; read the cells again"
)

// edit asks the page for an edit, or only tries it. Whether the page did it shows when the cells are
// read again.
func (t Tab) edit(ctx context.Context, h How, p plan) (*Edited, error) {
	select {
	case t.Editing <- struct{}{}:
		defer func() { <-t.Editing }()
	case <-ctx.Done():
		return nil, notebook.ErrBusy
	}
	before, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	if h.Digest != "" && h.Digest != before.digest {
		return nil, ErrTabChanged
	}
	planned := *before.doc.Document // edits write new bytes
	c, err := p(document{Document: &planned})
	if err == nil {
		err = c.fitsTab()
	}
	if err == nil {
		err = c.apply(&planned)
	}
	if err != nil {
		return nil, err
	}
	var notes []string
	if h.DryRun || h.Digest != "" { // who asks for either may rely on a lock
		notes = []string{noLockNote}
	}
	after := &planned
	switch {
	case c.nothing():
		notes = []string{unchanged}
	case !h.DryRun:
		if after, err = t.ask(ctx, before, &c); err != nil {
			return nil, err
		}
		if digest(&planned, false) != digest(after, false) {
			notes = append(notes, surpriseNote)
		}
	}
	e := &Edited{CellCount: after.Len(), Digest: digest(after, true), Notes: notes, DryRun: h.DryRun, Changed: !c.nothing()}
	c.describe(e)
	return e, nil
}

// tabLanguages are the languages of code cells that Colab's page knows. It does not tell the
// notebook's.
var tabLanguages = []string{"python", "r", "julia"}

// fitsTab refuses what the page cannot do.
func (c *change) fitsTab() error {
	switch {
	case c.before == nil && c.after.Type == notebook.Code && !slices.Contains(tabLanguages, strings.ToLower(c.language)):
		return fmt.Errorf("%w: Colab has no language %q: use python, r or julia, or omit it", ErrLanguage, plain.Clip(c.language, 40))
	case c.before != nil && c.after != nil && c.before.Type != c.after.Type:
		return ErrType
	}
	return nil
}

// ask asks the page for an edit and returns the notebook after it.
func (t Tab) ask(ctx context.Context, before *snapshot, c *change) (*notebook.Document, error) {
	added, err := t.request(ctx, before, c)
	if err != nil {
		return nil, err
	}
	after, err := t.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("the page was asked for the edit, but its effect could not be read: %w", err)
	}
	if c.before == nil {
		c.id = plain.Line(added) // unless another edit removed it already
		if at := slices.IndexFunc(after.cells, func(cell page.Cell) bool { return cell.ID == added }); at >= 0 {
			c.to, c.id = at, after.doc.Cell(at).Handle
		}
	}
	return after.doc.Document, nil
}

// request asks the page for an edit. It returns the page's id of an added cell.
func (t Tab) request(ctx context.Context, before *snapshot, c *change) (added string, err error) {
	id := ""
	if c.before != nil {
		if id, err = before.pageID(c.before.Index); err != nil {
			return "", err
		}
	}
	switch {
	case c.before == nil && c.after.Type == notebook.Code:
		return t.AddCode(ctx, c.to, strings.ToLower(c.language), c.after.Source)
	case c.before == nil:
		return t.AddText(ctx, c.to, c.after.Source)
	case c.after == nil:
		return "", t.Delete(ctx, id)
	case c.before.Index != c.to:
		return "", t.Move(ctx, id, c.to)
	}
	return "", t.Update(ctx, id, c.after.Source)
}

// Ran is how far a run of a cell in a tab is.
type Ran struct {
	Started time.Time
	Running bool            // the same call waits on
	Outputs json.RawMessage // a list of nbformat outputs
	Notes   []string
}

const noOutputNote = "the page answered without outputs. If the cell should have shown something, ask the user to look at the tab: a notebook from GitHub waits there for a click on \"Run anyway\""

// Run runs a code cell in the notebook's own kernel, or waits on for one that runs, for so long.
func (t Tab) Run(ctx context.Context, handle string, wait time.Duration) (*Ran, error) {
	s, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	at, err := s.doc.Find(handle)
	if err != nil {
		return nil, err
	}
	if kind := s.doc.Cell(at).Type; kind != notebook.Code {
		return nil, fmt.Errorf("%w: %s is a %s cell", ErrNotCode, Name(at, handle), plain.Clip(string(kind), 40))
	}
	id, err := s.pageID(at)
	if err != nil {
		return nil, err
	}
	read := time.Now()
	waiting, done := context.WithTimeout(ctx, wait)
	defer done()
	result, err := t.Tab.Run(waiting, id)
	got := &Ran{Started: result.Started, Outputs: result.Outputs, Running: errors.Is(err, page.ErrRunning)}
	switch {
	case got.Running:
		return got, nil
	case err != nil:
		return nil, err
	case !bytes.ContainsRune(result.Outputs, '{') && strings.TrimSpace(s.cells[at].Source) != "": // a kernel runs no empty code
		cells, err := t.Cells(ctx, at, at, false)
		same := err == nil && len(cells) == 1 && cells[0].ID == id
		if same && cells[0].ExecutionCount == nil {
			return nil, ErrNotRun
		}
		if same && !result.Started.Before(read) && s.cells[at].ExecutionCount != nil && *cells[0].ExecutionCount == *s.cells[at].ExecutionCount {
			got.Notes = []string{noOutputNote}
		}
	}
	return got, nil
}
