package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"colabrelay/relay/cells"
	"colabrelay/relay/hint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/transfer"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// notebookTarget is embedded in the arguments of the tools for cells.
type notebookTarget struct {
	Path string `json:"notebook_path" default:"" max:"4096" doc:"Local .ipynb file; empty: Colab's tab."`
	target
}

// fileTarget is embedded in the arguments of the tools that need a file.
type fileTarget struct {
	Path string `json:"notebook_path" default:"" max:"4096" doc:"Local .ipynb file."`
	target
}

// emptyPath reports whether no file is named. The notebook is that of the connected tab then, as in
// colab-mcp.
func (t notebookTarget) emptyPath() bool { return t.Path == "" }
func (t fileTarget) emptyPath() bool     { return t.Path == "" }

// notebookPath resolves the path of a file as the model gave it.
func (c *call) notebookPath(path string) (string, *Problem) {
	if path == "" {
		return "", c.noPath()
	}
	real, err := c.cfg.Notebooks.Resolve(path)
	if err != nil {
		return "", c.notebookProblem(err)
	}
	return real, nil
}

// noPath says that a tool needs a file.
func (c *call) noPath() *Problem {
	p := &Problem{
		Code: codeBadRequest, Message: "bad arguments: notebook_path is missing",
		Hint: "Give the path of an .ipynb file on this computer: absolute, beginning with ~/, or below " + c.startFolder() + ". ",
	}
	if c.cfg.Page == nil {
		p.Hint += "For the notebook that is open in the browser, toolset page must be on: the user runs `colab-relay install HOST --toolsets all` and restarts the host, or downloads the notebook."
	} else {
		p.Hint += "The notebook in Colab's tab must be downloaded for that (File > Download > Download .ipynb); or run its cells with run_code_cell, one at a time."
	}
	return p
}

// startFolder names the folder at which relative paths start.
func (c *call) startFolder() string {
	return fmt.Sprintf("the folder in which the relay was started (%s)", cmp.Or(plain.Line(c.cfg.Notebooks.Working), "which is not known"))
}

// inTab reports whether a call acts on the notebook in the connected tab: its notebook_path is
// empty, and this relay serves Colab's page.
func (c *call) inTab(path string) bool { return path == "" && c.cfg.Page != nil }

// tab returns the connected tab. The call uses no runtime then.
func (c *call) tab() (tab cells.Tab, problem *Problem) {
	c.target = runtimes.Runtime{}
	connected, ok := c.cfg.Page.Tab()
	if !ok {
		return tab, noTab
	}
	return cells.Tab{Tab: connected, Editing: c.tabEditing}, nil
}

// notebook returns the notebook at a path as the model gave it, or that in the tab. Unless it may be
// new, a file must exist.
func (c *call) notebook(path string, mayBeNew bool) (cells.Notebook, *Problem) {
	if c.inTab(path) {
		return c.tab()
	}
	real, problem := c.notebookPath(path)
	if problem != nil {
		return nil, problem
	}
	open := notebook.OpenFile
	if mayBeNew {
		open = notebook.OpenOrNew
	}
	file, err := open(real, c.cfg.CheckpointDir)
	if err != nil {
		return nil, c.notebookProblem(err)
	}
	return cells.File{File: file, Records: c.cfg.CheckpointDir, Seen: c.kernels.seen}, nil
}

// Codes of errors of Colab's page.
const (
	codeNoTab      = "no_tab"   // no tab is connected
	codeTabLost    = "tab_lost" // in the call
	codeTabRefused = hint.CodePageRefused
	codeNotRun     = "not_run" // the page answered without running the cell
)

var noTab = &Problem{
	Code: codeNoTab, Message: "no tab of Colab is connected",
	Hint: "Call open_colab_browser_connection first, then call again. For a notebook file give notebook_path.",
}

const lostHint = "Call open_colab_browser_connection, then get_cells, before you repeat anything: a cell may have been changed, and one that ran may still be running."

// cellHints are the codes and next steps of errors about cells, which relay/hint does not know yet.
var cellHints = []struct {
	err        error
	code, hint string
}{
	{cells.ErrFind, codeBadRequest, "Read the cell with get_cells and cellId, and copy find from there exactly, with spaces and line breaks, and without characters that are not shown: a part that occurs once. Or omit find and give the whole source as content."},
	{cells.ErrLanguage, string(contract.CodeNotSupported), "Give the notebook's own language, or use another notebook. Only Python cells can be run."},
	{cells.ErrLoss, codeBadRequest, "Change parts of the source with find, which keeps the rest, or delete the cell and add a new one if nothing of it is needed."},
	{cells.ErrNotCode, codeBadRequest, "get_cells shows the type of each cell."},
	{cells.ErrNotRun, codeNotRun, "Ask the user to look at the tab and to click what it asks for: \"Run anyway\" (notebooks from GitHub), signing in, or connecting to a runtime. Then call again."},
	{cells.ErrPlace, codeBadRequest, "Give cellIndex or afterCellId; without both, the cell is appended."},
	{cells.ErrQuery, codeBadRequest, "Use the syntax of RE2, which has no look-around and no references to groups, or give a text without slashes."},
	{cells.ErrSameID, codeTabRefused, "Ask the user to copy one of the cells in Colab and to delete the original, then call get_cells again."},
	{cells.ErrTabChanged, string(contract.CodeChanged), "Call get_cells again, look at what is different, then repeat the call."},
	{cells.ErrType, string(contract.CodeNotSupported), "Add a cell of the other type with the same source, then delete this one; or ask the user to change it in Colab."},
	{page.ErrTabLost, codeTabLost, lostHint},
	{page.ErrClosed, codeTabLost, lostHint},
}

// cellProblem translates an error of a call about the notebook at a path, or in the tab.
func (c *call) cellProblem(path string, err error) *Problem {
	if c.inTab(path) {
		return c.tabProblem(err)
	}
	return c.notebookProblem(err)
}

// tabProblem translates an error of a call that acts on the tab.
func (c *call) tabProblem(err error) *Problem {
	if _, refused := errors.AsType[*page.ToolError](err); refused {
		return &Problem{Code: codeTabRefused, Message: err.Error(), Hint: "Read the cells with get_cells, then correct the call. If the message is about signing in, a runtime or a GPU, ask the user to do in the browser what it says."}
	}
	p := c.notebookProblem(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Problem{Code: p.Code, Message: err.Error(), Hint: "Ask the user to look at the tab: a dialog may be open there, or the computer may have suspended the tab. Then read the cells with get_cells before you repeat anything."}
	case p.Code == codeInternal: // the page lacks a tool, or what it answered cannot be read
		return &Problem{Code: codeTabRefused, Message: err.Error(), Hint: "Ask the user to reload the page, then call open_colab_browser_connection. If that does not help, ask the user to update colab-relay; notebook files still work with notebook_path."}
	}
	return p
}

// notebookProblem translates an error about a notebook.
func (c *call) notebookProblem(err error) *Problem {
	for _, h := range cellHints {
		if errors.Is(err, h.err) {
			return &Problem{Code: h.code, Message: err.Error(), Hint: h.hint}
		}
	}
	p := problemOf(err)
	missing, isMissing := errors.AsType[*notebook.NoCellError](err)
	_, onDisk := errors.AsType[*fs.PathError](err)
	switch {
	case isMissing:
		p = &Problem{Code: string(contract.CodeNotFound), Message: missing.Error(), Hint: "get_cells lists the ids of all cells."}
		if len(missing.Nearest) > 0 {
			p.Hint = "Similar ids are " + quotedList(missing.Nearest, "and") + ". " + p.Hint
		}
	case errors.Is(err, bounded.ErrTooLong) && p.Code == codeInternal:
		return &Problem{Code: string(contract.CodeTooLarge), Message: err.Error(), Hint: "The message names the bound. Split the cell or the notebook, or move data into a file; Jupyter and Colab can clear large outputs."}
	case errors.Is(err, fs.ErrNotExist):
		return p.withHint("Check notebook_path; a relative one starts at " + c.startFolder() + ". add_code_cell and add_text_cell create a notebook in a folder that exists.")
	case transfer.DiskFull(err):
		return &Problem{Code: hint.CodeLocalDiskFull, Message: err.Error(), Hint: "The notebook was not changed. Free disk space on this computer, then call again."}
	case p.Code == codeInternal && onDisk:
		return &Problem{Code: hint.CodeLocalFile, Message: err.Error(), Hint: "Check that notebook_path names a file that this user may read and write, then call again."}
	}
	return p
}
