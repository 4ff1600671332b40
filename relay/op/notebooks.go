package op

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"colabrelay/relay/cells"
	"colabrelay/relay/hint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// notebookTarget is embedded in the arguments of the tools for cells.
type notebookTarget struct {
	Path string `json:"notebook_path" arg:"FILE" complete:"notebooks" default:"" max:"4096" doc:"Local .ipynb file; empty: Colab's tab."`
	target
}

// fileTarget is embedded in the arguments of the tools that need a file.
type fileTarget struct {
	Path string `json:"notebook_path" arg:"FILE" complete:"notebooks" default:"" max:"4096" doc:"Local .ipynb file."`
	target
}

// emptyPath reports whether no file is named. The notebook is that of the connected tab then, as in
// colab-mcp.
func (t notebookTarget) emptyPath() bool { return t.Path == "" }
func (t fileTarget) emptyPath() bool     { return t.Path == "" }

func (t notebookTarget) path() string { return t.Path }
func (t fileTarget) path() string     { return t.Path }

// notebookArgs are arguments that name a notebook.
type notebookArgs interface {
	targeted
	path() string
}

// onNotebook is operation for what acts on a notebook, in a file or in the tab.
func onNotebook[A notebookArgs, P any, PP interface {
	*P
	payload
}](s spec, do func(ctx context.Context, c *call, args A) (PP, error)) tool {
	return operation(s, func(ctx context.Context, c *call, args A) (PP, error) {
		got, err := do(ctx, c, args)
		switch {
		case err == nil:
			return got, nil
		case c.person == nil && c.inTab(args.path()):
			return got, c.tabProblem(err)
		case c.person == nil:
			return got, c.notebookProblem(err)
		case errors.Is(err, cells.ErrPlace), errors.Is(err, notebook.ErrNoIndex):
			return got, &ArgumentError{err: err}
		}
		return got, err
	})
}

// notebookPath resolves the path of a file as it was given.
func (c *call) notebookPath(path string) (string, error) {
	switch {
	case c.person != nil && !strings.EqualFold(filepath.Ext(path), ".ipynb"):
		return "", &ArgumentError{err: fmt.Errorf("%q is not a notebook: its name must end in .ipynb", path)}
	case c.person != nil:
		return filename.Existing(path)
	case path == "":
		return "", c.noPath()
	}
	return c.cfg.Notebooks.Resolve(path)
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
func (c *call) tab() (cells.Tab, error) {
	c.target = runtimes.Runtime{}
	connected, ok := c.cfg.Page.Tab()
	if !ok {
		return cells.Tab{}, noTab
	}
	return cells.Tab{Tab: connected, Editing: c.tabEditing}, nil
}

// notebook returns the notebook at a path as it was given, or that in the tab. Unless it may be new,
// a file must exist.
func (c *call) notebook(path string, mayBeNew bool) (cells.Notebook, error) {
	if c.inTab(path) {
		return c.tab()
	}
	real, err := c.notebookPath(path)
	if err != nil {
		return nil, err
	}
	open := notebook.OpenFile
	if mayBeNew {
		open = notebook.OpenOrNew
	}
	file, err := open(real, c.cfg.CheckpointDir)
	return cells.File{File: file, Records: c.cfg.CheckpointDir, Seen: c.kernels.seen, ByIndex: c.person != nil}, err
}

// Codes of errors of Colab's page.
const (
	codeNoTab      = "no_tab" // no tab is connected
	codeTabRefused = hint.CodePageRefused
)

var noTab = &Problem{
	Code: codeNoTab, Message: "no tab of Colab is connected",
	Hint: "Call open_colab_browser_connection first, then call again. For a notebook file give notebook_path.",
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
	p := problemOf(err)
	_, onDisk := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, bounded.ErrTooLong) && p.Code == codeInternal:
		return &Problem{Code: string(contract.CodeTooLarge), Message: err.Error(), Hint: "The message names the bound. Split the cell or the notebook, or move data into a file; Jupyter and Colab can clear large outputs."}
	case errors.Is(err, fs.ErrNotExist):
		return p.withHint("Check notebook_path; a relative one starts at " + c.startFolder() + ". add_code_cell and add_text_cell create a notebook in a folder that exists.")
	case p.Code == codeInternal && onDisk:
		return &Problem{Code: hint.CodeLocalFile, Message: err.Error(), Hint: "Check that notebook_path names a file that this user may read and write, then call again."}
	}
	return p
}
