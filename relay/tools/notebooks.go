package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"colabrelay/relay/hint"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/relay/plain"
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
	if c.cfg.Notebooks.Working == "" {
		return "the folder in which the relay was started"
	}
	return fmt.Sprintf("the folder in which the relay was started (%s)", plain.Line(c.cfg.Notebooks.Working))
}

// openNotebook returns the notebook at a path as the model gave it. Unless it may be new, it must
// exist.
func (c *call) openNotebook(path string, mayBeNew bool) (*notebook.File, *Problem) {
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
	return file, nil
}

// notebookProblem translates an error about a notebook.
func (c *call) notebookProblem(err error) *Problem {
	var (
		missing *notebook.NoCellError
		onDisk  *fs.PathError
	)
	p := problemOf(err)
	switch {
	case errors.As(err, &missing):
		return noCell(missing)
	case errors.Is(err, bounded.ErrTooLong) && p.Code == codeInternal:
		return &Problem{Code: string(contract.CodeTooLarge), Message: err.Error(), Hint: "The message names the bound. Split the cell or the notebook, or move data into a file; Jupyter and Colab can clear large outputs."}
	case errors.Is(err, fs.ErrNotExist):
		return p.withHint("Check notebook_path; a relative one starts at " + c.startFolder() + ". add_code_cell and add_text_cell create a notebook in a folder that exists.")
	case transfer.DiskFull(err):
		return &Problem{Code: hint.CodeLocalDiskFull, Message: err.Error(), Hint: "The notebook was not changed. Free disk space on this computer, then call again."}
	case p.Code == codeInternal && errors.As(err, &onDisk):
		return &Problem{Code: hint.CodeLocalFile, Message: err.Error(), Hint: "Check that notebook_path names a file that this user may read and write, then call again."}
	}
	return p
}

// noCell says that a cell does not exist, and which may be meant.
func noCell(missing *notebook.NoCellError) *Problem {
	p := &Problem{Code: string(contract.CodeNotFound), Message: missing.Error(), Hint: "get_cells lists the ids of all cells."}
	if len(missing.Nearest) > 0 {
		p.Hint = "Similar ids are " + quotedList(missing.Nearest, "and") + ". " + p.Hint
	}
	return p
}

// record returns what is recorded of the runs of a notebook; nil if nothing is, or if it cannot
// be read.
func (c *call) record(path string) *nbrun.Record {
	record, err := nbrun.Load(c.cfg.CheckpointDir, path)
	if err != nil {
		return nil
	}
	return record
}

// saveTexts stores what cells print that is too long for the notebook, below LOCAL_SAVE_DIR.
func (c *call) saveTexts(path string) output.SaveText {
	if c.cfg.SaveDir == "" {
		return nil
	}
	const folder = "notebooks"
	return output.SaveIn(filepath.Join(c.cfg.SaveDir, folder), "LOCAL_SAVE_DIR/"+folder, nbrun.Name(path))
}

// notePlain notes which texts are shown without characters that they contain.
func notePlain(notes []string, ids []string) []string {
	if len(ids) == 0 {
		return notes
	}
	return append(notes, fmt.Sprintf("control and invisible characters and halves of surrogate pairs are not shown here, but stay in the file; update_cell keeps them if find changes another part; cells with some: %s", strings.Join(ids[:min(len(ids), 5)], ", ")))
}
