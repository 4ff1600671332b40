package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// inTab reports whether a call acts on the notebook in the connected tab: its notebook_path is
// empty, and this relay serves Colab's page.
func (c *call) inTab(path string) bool { return path == "" && c.cfg.Page != nil }

// tab returns the connected tab. The call uses no runtime then.
func (c *call) tab() (*page.Tab, *Problem) {
	c.target = runtimes.Runtime{}
	tab, connected := c.cfg.Page.Tab()
	if !connected {
		return nil, noTab
	}
	return tab, nil
}

// tabNotebook is the notebook in a tab as it was at one moment.
type tabNotebook struct {
	tab   *page.Tab
	cells []page.Cell // without outputs
	// doc has the same cells. Its handles are the page's ids, unless those are not valid in a
	// notebook file or occur twice.
	doc *notebook.Document
}

// readTab reads the cells in the tab without their outputs, of which a message may not hold all.
func (c *call) readTab(ctx context.Context) (*tabNotebook, *Problem) {
	tab, problem := c.tab()
	if problem != nil {
		return nil, problem
	}
	cells, err := tab.Cells(ctx, 0, -1, false)
	if err != nil {
		return nil, c.tabProblem(err)
	}
	doc, err := tabDocument(cells)
	if err != nil {
		return nil, c.tabProblem(err)
	}
	return &tabNotebook{tab, cells, doc}, nil
}

// tabDocument returns a notebook file with these cells.
func tabDocument(cells []page.Cell) (*notebook.Document, error) {
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
	doc, err := notebook.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading the notebook in Colab's tab: %w", err)
	}
	return doc, nil
}

// tabDigest is the hexadecimal SHA-256 of the ids, types and sources of the cells in a tab. A
// run changes none of them.
func tabDigest(doc *notebook.Document) string {
	sum := sha256.New()
	for i := range doc.Len() {
		cell := doc.Cell(i)
		for _, part := range []string{cell.Handle, string(cell.Type), cell.Source} {
			fmt.Fprintf(sum, "%d:%s", len(part), part)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// id returns the page's id of the cell at an index, by which its tools find the cell.
func (n *tabNotebook) id(at int) (string, error) {
	id := n.cells[at].ID
	for i := range n.cells {
		if i != at && n.cells[i].ID == id {
			return "", &Problem{
				Code: codeTabRefused, Message: fmt.Sprintf("cells %d and %d in the tab have the same id, so Colab's page would change or run the wrong one", min(i, at), max(i, at)),
				Hint: "Ask the user to copy one of the cells in Colab and to delete the original, then call get_cells again.",
			}
		}
	}
	return id, nil
}

// find returns the index and the page's id of the cell with a handle.
func (n *tabNotebook) find(handle string) (at int, id string, err error) {
	if at, err = n.doc.Find(handle); err == nil {
		id, err = n.id(at)
	}
	return at, id, err
}

var errTabChanged = &Problem{
	Code: string(contract.CodeChanged), Message: "the notebook in the tab was edited meanwhile",
	Hint: "Call get_cells again, look at what is different, then repeat the call.",
}

// outputs asks the page for the outputs of the cell at an index, of one cell at a time: each may
// have many megabytes. The cell must still be there.
func (n *tabNotebook) outputs(ctx context.Context, at int) (json.RawMessage, error) {
	if n.cells[at].Type != string(notebook.Code) {
		return nil, nil
	}
	cells, err := n.tab.Cells(ctx, at, at, true)
	if err != nil {
		return nil, err
	}
	if len(cells) == 0 || cells[0].ID != n.cells[at].ID {
		return nil, errTabChanged
	}
	return cells[0].Outputs, nil
}

// tabRuns are the cells that this relay runs in the tab.
type tabRuns struct {
	mu  sync.Mutex
	tab *page.Tab // of all runs
	ids map[string]tabRun
}

// tabRun is the run of a cell.
type tabRun struct {
	started time.Time
	count   string // the cell's execution count before
}

// maxTabRuns bounds the runs that are remembered. Further ones are only not shown as running.
const maxTabRuns = 1000

// begin returns the run of a cell: one that another call began, or a new one.
func (r *tabRuns) begin(tab *page.Tab, cell page.Cell) (run tabRun, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tab != tab {
		r.tab, r.ids = tab, map[string]tabRun{}
	}
	if run, joined = r.ids[cell.ID]; joined {
		return run, true
	}
	run = tabRun{time.Now(), countOf(cell)}
	if len(r.ids) < maxTabRuns {
		r.ids[cell.ID] = run
	}
	return run, false
}

// end forgets the run of a cell whose end was read, or whose source is another one now.
func (r *tabRuns) end(tab *page.Tab, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tab == tab {
		delete(r.ids, id)
	}
}

// states returns the states of the cells that get_cells shows: running for those that this relay
// started and that have no number yet, and otherwise none, because the page tells no more.
func (r *tabRuns) states(n *tabNotebook) []nbrun.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := make([]nbrun.State, len(n.cells))
	for i, cell := range n.cells {
		if _, running := r.ids[cell.ID]; running && r.tab == n.tab && cell.ExecutionCount == nil {
			states[i] = nbrun.Running
		}
	}
	return states
}

// countOf is a cell's execution count as text; empty while it has none.
func countOf(cell page.Cell) string {
	if cell.ExecutionCount == nil {
		return ""
	}
	return strconv.Itoa(*cell.ExecutionCount)
}
