package tools

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/cells"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

type runNotebookArgs struct {
	fileTarget
	Cells       string  `json:"cells" default:"all" max:"20000" doc:"all; dirty (from the first cell that changed or has not succeeded); or ids and ranges, such as 3-7 or from:ID, with commas."`
	Parameters  string  `json:"parameters" default:"" doc:"JSON object of variables, as papermill's."`
	OnError     string  `json:"on_error" default:"stop" choices:"stop,continue,skip_dependants" doc:"What happens after a failed cell."`
	Restart     bool    `json:"restart" default:"false" doc:"Restart the kernel first; variables are lost."`
	Output      string  `json:"output_path" default:"" max:"4096" doc:"Save outputs in this new copy instead."`
	CellTimeout float64 `json:"cell_timeout_seconds" default:"600" min:"1" max:"86400" doc:"For each cell; the tag timeout=N sets a cell's own."`
	Retries     int64   `json:"retries" default:"0" min:"0" max:"9" doc:"After transient errors of a cell; what it did stays."`
	OnNew       string  `json:"on_new_kernel" default:"stop" choices:"stop,rerun" doc:"If the executor or VM is replaced."`
	State       string  `json:"state_name" default:"" max:"200" rare:"" doc:"Save variables under this name after cells tagged save-state, for a new kernel."`
	DryRun      bool    `json:"dry_run" default:"false" doc:"Only show the plan."`
}

// NotebookRun is the answer of run_notebook.
type NotebookRun struct {
	Status      string              `json:"status"` // planned, running, waiting_for_input, succeeded, failed, interrupted, kernel_died or new_kernel
	Counts      map[string]int      `json:"counts,omitempty"`
	Current     *CurrentCell        `json:"current,omitempty"`
	Failed      []FailedCell        `json:"failed_cells,omitempty"`
	Skipped     []string            `json:"skipped_cells,omitempty"` // why each was skipped; at most maxSkipped
	Plan        []nbrun.PlannedCell `json:"plan,omitempty"`          // of a dry run
	Output      string              `json:"output"`                  // of this call's cells; head and tail if it is long
	CanContinue bool                `json:"can_continue"`            // the same call continues
	NextCommand string              `json:"next_command,omitempty"`
	InputPrompt *string             `json:"input_prompt,omitempty"`
	SavedFiles  []string            `json:"saved_files,omitempty"`
	Notes       []string            `json:"notes,omitempty"`

	printed     []block           // Output by cell
	pixels      map[string]string // of pictures among SavedFiles
	done, total int
	password    bool
	limit       int
}

// CurrentCell is the cell that runs.
type CurrentCell struct {
	CellID      string  `json:"cell_id"`
	Index       int     `json:"index"`
	Attempt     int     `json:"attempt"`
	ExecutionID string  `json:"execution_id"`
	Seconds     float64 `json:"seconds"`
}

// FailedCell is a cell that did not succeed.
type FailedCell struct {
	CellID      string `json:"cell_id"`
	Index       int    `json:"index"`
	Title       string `json:"title,omitempty"`
	Status      string `json:"status"`
	Attempts    int    `json:"attempts"`
	ExecutionID string `json:"execution_id,omitempty"`
	Error       string `json:"error,omitempty"`
}

func (r *NotebookRun) maxText() int { return r.limit }

func runNotebook() tool {
	return define(spec{
		name: "run_notebook", title: "Run a notebook",
		command:     Command{Name: "nb run", Own: true},
		summary:     "runs a notebook's cells as one job of the VM, and saves outputs in the file; the same call continues it",
		description: "Runs an .ipynb file, or cells of it, on the VM. It stops at the first error unless on_error says otherwise. Outputs are saved in the file; cells that have not begun follow edits. A call takes about 45 s; call again with the same arguments until the run has ended. For the values of a fresh run use restart.",
		destructive: true, openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args runNotebookArgs) (*NotebookRun, *Problem) {
		s, problem := c.notebookSpec(args)
		if problem != nil {
			return nil, problem
		}
		return c.runNotebook(ctx, args, s)
	})
}

// notebookSpec checks the arguments.
func (c *call) notebookSpec(args runNotebookArgs) (s nbrun.Spec, problem *Problem) {
	s = nbrun.Spec{
		Cells: args.Cells, Parameters: args.Parameters, OnError: nbrun.OnError(args.OnError), Retries: int(args.Retries),
		CellTimeout: inSeconds(args.CellTimeout), Restart: args.Restart, OnNewKernel: nbrun.OnNewKernel(args.OnNew),
		StateName: args.State, DryRun: args.DryRun, Runtime: c.target.Name,
	}
	if s.Path, problem = c.notebookPath(args.Path); problem != nil || args.Output == "" {
		return s, problem
	}
	s.OutputPath, problem = c.notebookPath(args.Output)
	return s, problem
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// runNotebook opens the run, continues it for as long as the call may take, and describes it.
func (c *call) runNotebook(ctx context.Context, args runNotebookArgs, s nbrun.Spec) (*NotebookRun, *Problem) {
	run, err := nbrun.Open(c.cfg.CheckpointDir, s)
	if err != nil {
		return nil, c.notebookProblem(err)
	}
	defer run.Close()
	out := &batchOutput{c: c}
	defer out.close()
	steps := &cellProgress{}
	c.progress.measureWith(steps.measure)
	outcome, err := run.Advance(ctx, c.target.Client, nbrun.Options{
		Until: time.Now().Add(c.waitBudget()), Progress: steps.set, SaveDir: c.cfg.SaveDir,
		States: c.target.Client,
		Output: func(cell nbrun.CellRecord, id string, events []contract.Event) {
			out.addCell(ctx, cell, id, events)
		},
	})
	c.sending = func() { _ = run.Delivered() } // without it, the same call repeats this answer
	out.flush(ctx)
	c.warnOfEnd(outcome.Execution.SessionMinutesLeft)
	c.kernels.record(c.target.Name, run.Record().KernelID)           // notes mention a new one
	if err != nil && len(outcome.Counts) == 0 && !unreachable(err) { // nothing is known of a run
		return nil, c.notebookProblem(err)
	}
	got := newNotebookRun(outcome, out)
	if outcome.Status != nbrun.StatusPlanned {
		got.addCells(run.Record().Run.Plan)
	}
	got.limit = c.cfg.TextLimit
	got.NextCommand = got.next(c, args, outcome)
	return got, got.problem(c, outcome, err)
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

// cellProgress is how far a run is, for the messages to the host.
type cellProgress struct {
	mu  sync.Mutex
	now nbrun.Progress
}

func (p *cellProgress) set(now nbrun.Progress) {
	p.mu.Lock()
	p.now = now
	p.mu.Unlock()
}

func (p *cellProgress) measure() (string, amount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%d/%d cells", p.now.Done, p.now.Total)
	for _, part := range []string{p.now.Title, p.now.LastLine} {
		if part = plain.Clip(part, progressRunes/3); part != "" {
			line += ", " + part
		}
	}
	return line, amount{int64(p.now.Done), int64(p.now.Total)}
}

// clipped is a line of at most cells.MaxTitle characters.
func clipped(s string) string { return plain.Clip(s, cells.MaxTitle) }

func newNotebookRun(o nbrun.Outcome, out *batchOutput) *NotebookRun {
	got := &NotebookRun{
		Status: string(o.Status), Counts: map[string]int{}, Output: out.text(), printed: out.shown(), CanContinue: o.CanContinue,
		Notes: append(o.Notes, fewer(out.notes)...), SavedFiles: o.SavedFiles,
	}
	for status, n := range o.Counts {
		if n > 0 {
			got.Counts[string(status)] = n
		}
		got.total += n
		switch status {
		case nbrun.CellNotRun, nbrun.CellRunning, nbrun.CellSkipped:
		default:
			got.done += n
		}
	}
	got.pixels = map[string]string{}
	for _, f := range out.files {
		got.SavedFiles = append(got.SavedFiles, f.Path)
		got.pixels[f.Path] = f.Pixels
	}
	if n := o.Current; n != nil {
		got.Current = &CurrentCell{n.Handle, n.Index, n.Attempts, n.Last.ExecutionID, *round(n.Last.Seconds, 1000)}
	}
	for _, cell := range o.Plan {
		cell.Title, cell.Why = clipped(cell.Title), clipped(cell.Why)
		got.Plan = append(got.Plan, cell)
	}
	var cut bool
	if got.Plan, cut = fitList(got.Plan); cut {
		got.Notes = append(got.Notes, "the plan is longer than shown here")
	}
	if o.Prompt != nil {
		text, _ := render.Clip(o.Prompt.Prompt, contract.MaxBehindPrompt)
		got.InputPrompt, got.password = &text, o.Prompt.Password
		out.c.prompts.put(o.Execution.ExecutionID, o.Prompt.Offset)
	}
	return got
}

// maxNamed bounds the failed and the skipped cells of one answer.
const maxNamed = 20

// addCells names the cells that failed or were skipped.
func (r *NotebookRun) addCells(plan []nbrun.CellRecord) {
	for _, cell := range plan {
		switch {
		case cell.Status.Failed() && len(r.Failed) < maxNamed:
			r.Failed = append(r.Failed, failedCell(cell))
		case cell.Status == nbrun.CellSkipped && len(r.Skipped) < maxNamed:
			r.Skipped = append(r.Skipped, clipped(plain.Line(cell.Problem())))
		}
	}
}

// failedCell describes a cell that did not succeed.
func failedCell(cell nbrun.CellRecord) FailedCell {
	f := FailedCell{CellID: cell.Handle, Index: cell.Index, Title: clipped(cell.Title), Status: string(cell.Status), Attempts: cell.Attempts}
	last := cell.Last
	if last == nil {
		return f
	}
	f.ExecutionID = last.ExecutionID
	if cell.Status == nbrun.CellTimedOut {
		f.Error = fmt.Sprintf("interrupted after %.3g s, its deadline", last.Seconds)
		return f
	}
	if e := last.Error; e != nil {
		f.Error = clipped(strings.TrimSuffix(strings.TrimPrefix(e.EName+": "+e.EValue, ": "), ": "))
		if e.EName == "" {
			f.Error = clipped(e.Reason)
		}
	}
	return f
}

func (r *NotebookRun) text(b *words) {
	if r.Status == string(nbrun.StatusPlanned) {
		b.WriteString("This is the plan; nothing was run.\n")
	} else {
		b.WriteString(r.doneText())
	}
	if n := r.Current; n != nil {
		fmt.Fprintf(b, "Current: %s, attempt %d, %.3g s, execution_id %s\n", cells.Name(n.Index, n.CellID), n.Attempt, n.Seconds, n.ExecutionID)
	}
	if r.InputPrompt != nil {
		fmt.Fprintf(b, "It asks: %s\n", plain.Quote(plain.Clip(*r.InputPrompt, maxInline)))
	}
	if r.NextCommand != "" {
		fmt.Fprintf(b, "Next step: %s\n", r.NextCommand)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(b, "%s: %s, %s", cells.Name(f.Index, f.CellID), f.Status, plain.Count(f.Attempts, "attempt"))
		if f.Error != "" {
			fmt.Fprintf(b, ": %s", plain.Quote(f.Error))
		}
		b.WriteString("\n")
	}
	for _, why := range r.Skipped {
		b.WriteString(why + "\n")
	}
	for _, p := range r.Plan {
		verb := "runs"
		if !p.Run {
			verb = "does not run"
		}
		b.WriteString(strings.TrimSuffix(fmt.Sprintf("%s %s: %s", cells.Name(p.Index, p.CellID), verb, p.Why), ": ") + "\n")
	}
	b.notes(r.Notes)
	for _, path := range r.SavedFiles {
		fmt.Fprintf(b, "Saved: %s\n", render.File{Path: path, Pixels: r.pixels[path]})
	}
	for _, one := range r.printed {
		b.quote(one.heading, one.text)
	}
}

// doneText says how many cells ran. Skipped ones did not.
func (r *NotebookRun) doneText() string {
	text := fmt.Sprintf("%d of %s done", r.done, plain.Count(r.total, "cell"))
	ran := maps.Clone(r.Counts)
	if n := ran[string(nbrun.CellSkipped)]; n > 0 {
		text += fmt.Sprintf(", %d skipped", n)
		delete(ran, string(nbrun.CellSkipped))
	}
	return fmt.Sprintf("%s, status %s%s\n", text, r.Status, (&NotebookRun{Counts: ran}).countsText())
}
