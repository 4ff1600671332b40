package op

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/cells"
	"colabrelay/relay/checkpoint"
	"colabrelay/relay/hint"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// RunNotebookArgs are the arguments of run_notebook. `colab-relay nb run` completes them.
type RunNotebookArgs struct {
	fileTarget
	Output      string  `json:"output_path" flag:"output-path" usage:"write the outputs into this new 'FILE', a copy, and leave the notebook as it is" default:"" max:"4096" doc:"Save outputs in this new copy instead."`
	Cells       string  `json:"cells" flag:"cells" usage:"which 'CELLS': all, dirty (from the first cell that changed or has not succeeded), ids, indexes such as 3-7 (7 is included), from:ID, or several with commas between them" default:"all" max:"20000" doc:"all; dirty (from the first cell that changed or has not succeeded); or ids and ranges, such as 3-7 or from:ID, with commas."`
	Parameters  string  `json:"parameters" flag:"parameters" usage:"set parameters: a 'JSON' object" default:"" doc:"JSON object of variables, as papermill's."`
	OnError     string  `json:"on_error" flag:"on-error" usage:"'ACTION' after a cell has failed: stop, continue, or skip_dependants (skip the cells that use its names)" default:"stop" choices:"stop,continue,skip_dependants" doc:"What happens after a failed cell."`
	Restart     bool    `json:"restart" flag:"restart" usage:"restart the kernel first, which deletes all variables" default:"false" doc:"Restart the kernel first; variables are lost."`
	CellTimeout float64 `json:"cell_timeout_seconds" default:"600" min:"1" max:"86400" doc:"For each cell; the tag timeout=N sets a cell's own."`
	Retries     int64   `json:"retries" flag:"retries" usage:"run a cell up to this 'NUMBER' of times again after errors that usually pass by themselves; what it did before stays" default:"0" min:"0" max:"9" doc:"After transient errors of a cell; what it did stays."`
	OnNew       string  `json:"on_new_kernel" flag:"on-new-kernel" usage:"'ACTION' if the executor or the VM is replaced during the run: stop, or rerun from the first cell" default:"stop" choices:"stop,rerun" doc:"If the executor or VM is replaced."`
	State       string  `json:"state_name" flag:"state-name" usage:"save the variables under this 'NAME' after each cell with the tag save-state, and restore them in a new kernel; the run waits there until this command is called" default:"" max:"200" rare:"" doc:"Save variables under this name after cells tagged save-state, for a new kernel."`
	DryRun      bool    `json:"dry_run" flag:"dry-run,n" usage:"print which cells would run, and run nothing" default:"false" doc:"Only show the plan."`
}

// NotebookReport is the answer of `colab-relay nb report`: what happened in a run of a notebook.
type NotebookReport struct {
	Success    *bool                    `json:"success,omitempty"` // the run is finished, and nothing failed or was skipped; in an agent's answer it means the call
	Notebook   string                   `json:"notebook,omitempty"`
	OutputPath string                   `json:"output_path,omitempty"` // the file that has the outputs
	RunID      string                   `json:"run_id,omitempty"`
	Status     nbrun.Status             `json:"status"`
	Counts     map[nbrun.CellStatus]int `json:"counts,omitempty"`
	StartedAt  time.Time                `json:"started_at,omitzero"`
	FinishedAt *time.Time               `json:"finished_at,omitempty"`
	Seconds    float64                  `json:"seconds"` // of the last executions, without the time between them
	Cells      []nbrun.CellRecord       `json:"cells,omitempty"`
	Notes      []string                 `json:"notes,omitempty"`

	run   *nbrun.RunRecord
	brief bool // without a table of all cells
}

func newReport(c *call, r *nbrun.Record) NotebookReport {
	run, outputs := &r.Run, cmp.Or(r.Run.Spec.OutputPath, r.Path)
	if run.Spec.Unsaved {
		outputs = ""
	}
	got := NotebookReport{
		Notebook: r.Path, OutputPath: outputs, RunID: run.ID, Status: run.Status, Counts: run.Counts(), StartedAt: run.StartedAt,
		FinishedAt: run.FinishedAt, Seconds: run.Seconds(), Cells: fit(c, slices.Clone(run.Plan)), Notes: run.Notes, run: run,
	}
	if c.person != nil {
		c.target.Name = r.Runtime
		succeeded := run.Succeeded()
		got.Success = &succeeded
	}
	return got
}

func reportNotebook() Operation {
	return operation(spec{
		Command: Command{Setting: "CHECKPOINT_DIR",
			Short:    "Show how the last run of a notebook went",
			Long:     "Show what happened to each cell in the last run of a notebook: attempts, durations, errors, and why cells were skipped. It contacts no VM.",
			Examples: "  colab-relay nb report analysis.ipynb\n  colab-relay nb report --json analysis.ipynb"},
	}, func(_ context.Context, c *call, args fileTarget) (*NotebookReport, error) {
		path, err := c.notebookPath(args.Path)
		if err != nil {
			return nil, err
		}
		file, err := notebook.OpenFile(path, "")
		if err != nil {
			return nil, err
		}
		record, err := nbrun.Load(c.cfg.CheckpointDir, file.Path())
		if errors.Is(err, checkpoint.ErrNotFound) || err == nil && record.Run.ID == "" {
			return nil, fmt.Errorf("the notebook %s was not run as a whole from this computer yet: `colab-relay nb run FILE` runs it", plain.Line(args.Path))
		}
		if err != nil {
			return nil, err
		}
		got := newReport(c, record)
		return &got, nil
	})
}

func (r *NotebookReport) text(w *words) {
	fmt.Fprintf(w, "%s\n", plain.Line(r.run.Summary()))
	var problems []string
	for i := range r.run.Plan {
		cell := &r.run.Plan[i]
		if problem := cell.Problem(); problem != "" && (w.person != nil || cell.Status != nbrun.CellNotRun) {
			problems = append(problems, clipped(problem))
		}
	}
	if more := len(problems) - maxNamed; w.person == nil && more > 0 {
		problems = append(problems[:maxNamed], "and "+plain.Count(more, "more cell"))
	}
	w.quote("cells that did not succeed", strings.Join(problems, "\n"))
	w.notes(r.Notes)
	if r.brief || len(r.Cells) == 0 {
		return
	}
	table := terminal.NewTable(terminal.Column{Title: "INDEX", Right: true}, terminal.Column{Title: "ID"}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: "ATTEMPTS", Right: true}, terminal.Column{Title: "SECONDS", Right: true}, terminal.Column{Title: "CELL"})
	for _, cell := range r.Cells {
		table.Add(strconv.Itoa(cell.Index), cell.Handle, nbrun.Words(cell.Status), strconv.Itoa(cell.Attempts), fmt.Sprintf("%.1f", cell.Seconds()), cell.Title)
	}
	w.table("cells", table)
}

// maxNamed bounds the cells of which a model reads what went wrong.
const maxNamed = 20

// NotebookRun is the answer of run_notebook.
type NotebookRun struct {
	NotebookReport
	Current     *nbrun.CellRecord   `json:"current,omitempty"` // the cell that runs
	Plan        []nbrun.PlannedCell `json:"plan,omitempty"`    // of a dry run
	Output      string              `json:"output"`            // of this call's cells; head and tail if it is long
	CanContinue bool                `json:"can_continue"`      // the same call continues
	NextCommand string              `json:"next_command,omitempty"`
	InputPrompt *string             `json:"input_prompt,omitempty"`
	SavedFiles  []string            `json:"saved_files,omitempty"`

	printed  []block           // Output by cell
	pixels   map[string]string // of pictures among SavedFiles
	password bool
	limit    int
}

func (r *NotebookRun) maxText() int { return r.limit }

func runNotebook() Operation {
	return operation(spec{
		title:       "Run a notebook",
		description: "Runs an .ipynb file, or cells of it, on the VM. It stops at the first error unless on_error says otherwise. Outputs are saved in the file; cells that have not begun follow edits. A call takes about 45 s; call again with the same arguments until the run has ended. For the values of a fresh run use restart.",
	}, func(ctx context.Context, c *call, args RunNotebookArgs) (*NotebookRun, error) {
		s, err := c.notebookSpec(args)
		if err != nil {
			return nil, err
		}
		run, err := nbrun.Open(c.cfg.CheckpointDir, s)
		if err != nil {
			return nil, err
		}
		defer run.Close()
		if c.person != nil {
			outcome, err := c.person.Notebook(ctx, run)
			if err != nil {
				return nil, err
			}
			return newNotebookRun(c, run, outcome), nil
		}
		return c.runNotebook(ctx, args, run)
	})
}

// notebookSpec returns what is to be run.
func (c *call) notebookSpec(args RunNotebookArgs) (s nbrun.Spec, err error) {
	s = nbrun.Spec{
		Cells: args.Cells, Parameters: args.Parameters, OnError: nbrun.OnError(args.OnError), Retries: int(args.Retries),
		CellTimeout: inSeconds(args.CellTimeout), Restart: args.Restart, OnNewKernel: nbrun.OnNewKernel(args.OnNew),
		StateName: args.State, DryRun: args.DryRun, Runtime: c.target.Name,
	}
	if s.Path, err = c.notebookPath(args.Path); err == nil && args.Output != "" {
		s.OutputPath, err = c.notebookPath(args.Output)
	}
	return s, err
}

// runNotebook continues the run for as long as the call may take, and describes it.
func (c *call) runNotebook(ctx context.Context, args RunNotebookArgs, run *nbrun.Run) (*NotebookRun, error) {
	out := &batchOutput{c: c}
	defer out.close()
	outcome, err := run.Advance(ctx, c.target.Client, nbrun.Options{
		Until: time.Now().Add(c.waitBudget()), SaveDir: c.cfg.SaveDir, States: c.target.Client,
		Progress: func(now nbrun.Progress) {
			c.progress.measureWith(func() (string, amount) { return cellProgress(now) })
		},
		Output: func(cell nbrun.CellRecord, id string, events []contract.Event) {
			out.addCell(ctx, cell, id, events)
		},
	})
	c.sending = func() { _ = run.Delivered() } // without it, the same call repeats this answer
	out.flush(ctx)
	c.warnOfEnd(outcome.Execution.SessionMinutesLeft)
	c.kernels.record(c.target.Name, run.Record().KernelID)                  // notes mention a new one
	if err != nil && len(run.Record().Run.Plan) == 0 && !unreachable(err) { // nothing is known of a run
		return nil, err
	}
	got := newNotebookRun(c, run, outcome)
	got.addOutput(outcome, out)
	got.limit = c.cfg.TextLimit
	got.NextCommand = got.next(c, args, outcome)
	if problem := got.problem(c, outcome, err); problem != nil {
		return got, problem
	}
	return got, nil
}

// addCell appends events of a cell, in order.
func (o *batchOutput) addCell(ctx context.Context, cell nbrun.CellRecord, id string, events []contract.Event) {
	if len(events) == 0 {
		return
	}
	if o.id != id {
		o.flush(ctx)
		o.heading = cells.Name(cell.Index, cell.Handle)
	}
	o.add(ctx, id, events)
}

// cellProgress says how far a run is.
func cellProgress(now nbrun.Progress) (string, amount) {
	line := fmt.Sprintf("%d/%d cells", now.Done, now.Total)
	for _, part := range []string{now.Title, now.LastLine} {
		if part = plain.Clip(part, progressRunes/3); part != "" {
			line += ", " + part
		}
	}
	return line, amount{int64(now.Done), int64(now.Total)}
}

// clipped is a line of at most cells.MaxTitle characters.
func clipped(s string) string { return plain.Clip(s, cells.MaxTitle) }

func newNotebookRun(c *call, run *nbrun.Run, o nbrun.Outcome) *NotebookRun {
	got := &NotebookRun{CanContinue: o.CanContinue, Current: o.Current, SavedFiles: o.SavedFiles}
	if o.Status != nbrun.StatusPlanned { // else the record is that of an earlier run
		got.NotebookReport = newReport(c, run.Record())
	}
	if got.Status, got.brief = o.Status, true; c.person == nil || got.run == nil {
		got.Notes = slices.Clone(o.Notes) // a person sees those of the run, not only of this call
	}
	for _, cell := range o.Plan {
		cell.Title, cell.Why = clipped(cell.Title), clipped(cell.Why)
		got.Plan = append(got.Plan, cell)
	}
	if kept := fit(c, got.Plan); len(kept) < len(got.Plan) {
		got.Plan, got.Notes = kept, append(got.Notes, "the plan is longer than shown here")
	}
	return got
}

// addOutput adds what the cells printed and ask.
func (r *NotebookRun) addOutput(o nbrun.Outcome, out *batchOutput) {
	r.Output, r.printed, r.pixels = out.text(), out.shown(), map[string]string{}
	r.Notes = append(r.Notes, fewer(out.notes)...)
	for _, f := range out.files {
		r.SavedFiles = append(r.SavedFiles, f.Path)
		r.pixels[f.Path] = f.Pixels
	}
	if o.Prompt != nil {
		text, _ := render.Clip(o.Prompt.Prompt, contract.MaxBehindPrompt)
		r.InputPrompt, r.password = &text, o.Prompt.Password
		out.c.prompts.put(o.Execution.ExecutionID, o.Prompt.Offset)
	}
}

// next returns the step after an answer: mostly the same call.
func (r *NotebookRun) next(c *call, args RunNotebookArgs, o nbrun.Outcome) string {
	again := c.again()
	switch {
	case args.DryRun || !r.CanContinue:
		return ""
	case o.Prompt != nil && r.password:
		return fmt.Sprintf("the cell asks for a password. %s Then call %s", hint.ForPassword(o.Execution.ExecutionID), again)
	case o.Prompt != nil:
		return fmt.Sprintf("%s, then %s", command("provide_input", "execution_id", o.Execution.ExecutionID, "text", "…", "runtime_name", args.Runtime), again)
	case o.Behind != nil:
		return fmt.Sprintf("the cell waits for %s. %s Then call %s", hint.Asking(o.Behind), hint.ForPrompt(o.Behind).Model, again)
	case o.Status == nbrun.StatusNewKernel:
		args.OnNew = string(nbrun.Rerun)
		return sameCall(c.tool, args)
	}
	return again
}

// problem returns the error of the answer; nil if the run succeeded or goes on.
func (r *NotebookRun) problem(c *call, o nbrun.Outcome, err error) *Problem {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && !unreachable(err) && o.Answered:
		r.Notes = append(r.Notes, "the VM did not answer the last request before this call's time was over")
		return nil
	case unreachable(err):
		return unread(err, "if the executor ended, the next call says what ran")
	default:
		return c.notebookProblem(err)
	}
	p := &Problem{Code: string(o.Status), Message: runMessages[o.Status], Hint: runHints[o.Status]}
	if p.Hint == "" {
		return nil
	}
	if r.Counts[nbrun.CellTimedOut] > 0 {
		p.Hint = "Allow the cell more time with cell_timeout_seconds, or with the tag timeout=N (seconds). " + p.Hint
	}
	return p
}

// runMessages says what each bad status means.
var runMessages = map[nbrun.Status]string{
	nbrun.StatusFailed:      "cells failed",
	nbrun.StatusInterrupted: "the run was stopped by an interrupt",
	nbrun.StatusKernelDied:  "the run was stopped: the kernel died under a cell",
	nbrun.StatusNewKernel:   "the kernel is new and lacks the variables of the cells that ran; on_new_kernel is stop",
}

// runHints says what to do about each.
var runHints = map[nbrun.Status]string{
	nbrun.StatusFailed:      "Correct the cells that failed with update_cell, then call run_notebook with cells=\"dirty\".",
	nbrun.StatusInterrupted: "Ask the user if the run should go on; the same call continues it.",
	nbrun.StatusKernelDied:  "If memory ran out, have the cell need less (update_cell). Then call run_notebook with cells=\"dirty\".",
	nbrun.StatusNewKernel:   "Call run_notebook with on_new_kernel=\"rerun\" to run all selected cells again, also those that have run.",
}

func (r *NotebookRun) text(w *words) {
	if r.run == nil {
		r.plan(w)
	} else {
		r.NotebookReport.text(w)
	}
	switch {
	case w.person == nil:
	case r.Status == nbrun.StatusNewKernel:
		w.note("the run is not finished; add --on-new-kernel rerun to start it again at its first cell")
		return
	case r.CanContinue:
		w.note("the run is not finished; the same command continues it")
		return
	}
	if n := r.Current; n != nil && n.Last != nil {
		fmt.Fprintf(w, "Current: %s, attempt %d, %.3g s, execution_id %s\n", cells.Name(n.Index, n.Handle), n.Attempts, n.Last.Seconds, n.Last.ExecutionID)
	}
	if r.InputPrompt != nil {
		fmt.Fprintf(w, "It asks: %s\n", plain.Quote(plain.Clip(*r.InputPrompt, maxInline)))
	}
	if r.NextCommand != "" {
		fmt.Fprintf(w, "Next step: %s\n", r.NextCommand)
	}
	for _, path := range r.SavedFiles {
		fmt.Fprintf(w, "Saved: %s\n", render.File{Path: path, Pixels: r.pixels[path]})
	}
	for _, one := range r.printed {
		w.quote(one.heading, one.text)
	}
}

// plan shows what a dry run found.
func (r *NotebookRun) plan(w *words) {
	w.note("This is the plan; nothing was run.")
	w.notes(r.Notes)
	table := terminal.NewTable(terminal.Column{Title: "INDEX", Right: true}, terminal.Column{Title: "ID"}, terminal.Column{Title: "RUNS"}, terminal.Column{Title: "CELL"}, terminal.Column{Title: "WHY"})
	for _, cell := range r.Plan {
		runs := "yes"
		if !cell.Run {
			runs = "no"
		}
		table.Add(strconv.Itoa(cell.Index), cell.CellID, runs, cell.Title, cmp.Or(cell.Why, "-"))
	}
	w.table("plan", table)
}

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

func (t notebookTarget) path() string { return t.Path }
func (t fileTarget) path() string     { return t.Path }

// notebookArgs are arguments that name a notebook.
type notebookArgs interface {
	targeted
	path() string
}

// notebookError is the error of an operation on a notebook, in a file or in the tab, in the words of
// its reader.
func (c *call) notebookError(path string, err error) error {
	switch {
	case c.person == nil && c.inTab(path):
		return c.tabProblem(err)
	case c.person == nil:
		return c.notebookProblem(err)
	case errors.Is(err, cells.ErrPlace), errors.Is(err, notebook.ErrNoIndex):
		return &ArgumentError{err: err}
	}
	return err
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
