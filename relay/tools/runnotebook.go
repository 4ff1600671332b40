package tools

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

type runNotebookArgs struct {
	fileTarget
	Output      string  `json:"output_path" default:"" max:"4096" doc:"Save outputs in this new copy; omitted: in the notebook."`
	Cells       string  `json:"cells" default:"all" max:"20000" doc:"all; dirty (from the first changed or outdated cell on); stale (only those and their dependants); or ids, ranges such as 3-7, from:ID, with commas."`
	Parameters  string  `json:"parameters" default:"" doc:"JSON object of variables, as papermill's."`
	OnError     string  `json:"on_error" default:"skip_dependents" max:"20" doc:"After a failed cell: skip_dependents, stop or continue."`
	Force       string  `json:"force" default:"" max:"20000" doc:"Ids of cells that run whatever failed."`
	MaxRetries  int64   `json:"max_retries" default:"2" min:"0" max:"20" doc:"Of a cell, after transient errors."`
	RetryBudget int64   `json:"retry_budget" default:"10" min:"0" max:"1000" doc:"Retries of the whole run."`
	RetryOn     string  `json:"retry_on" default:"" max:"20000" doc:"More exceptions to retry, by name or message; none: no others."`
	CellTimeout float64 `json:"cell_timeout_seconds" default:"600" min:"1" max:"86400" doc:"For each cell; the tag timeout=N sets a cell's own."`
	RunTimeout  float64 `json:"run_timeout_seconds" default:"0" min:"0" max:"2592000" doc:"For the run; 0: none."`
	Restart     bool    `json:"restart" default:"false" doc:"Restart the kernel first; variables are lost."`
	OnNew       string  `json:"on_new_kernel" default:"rerun" max:"20" doc:"If the kernel or VM is replaced: rerun or stop."`
	OnChange    string  `json:"on_change" default:"continue" max:"20" doc:"If the notebook is edited meanwhile: continue, refuse or restart."`
	State       string  `json:"state_name" default:"" max:"200" doc:"Save variables under this name after cells tagged save-state, for a new kernel."`
	DryRun      bool    `json:"dry_run" default:"false" doc:"Only show the plan."`
}

// NotebookRun is the answer of run_notebook.
type NotebookRun struct {
	Status      string         `json:"status"` // planned, running, waiting_for_input, succeeded, failed, interrupted, timed_out, kernel_died or new_kernel
	Counts      map[string]int `json:"counts,omitempty"`
	Current     *CurrentCell   `json:"current,omitempty"`
	Failed      []FailedCell   `json:"failed_cells,omitempty"`
	Skipped     []string       `json:"skipped_cells,omitempty" schema:"-"` // why each was skipped; at most maxSkipped
	Plan        []PlanCell     `json:"plan,omitempty"`                     // of a dry run
	Output      string         `json:"output"`                             // of this call's cells; head and tail if it is long
	ReportPath  string         `json:"report_path,omitempty"`
	CanContinue bool           `json:"can_continue"` // the same call continues
	NextCommand string         `json:"next_command,omitempty"`
	RetryAt     *time.Time     `json:"retry_at,omitempty"`
	InputPrompt *string        `json:"input_prompt,omitempty" schema:"-"`
	SavedFiles  []string       `json:"saved_files,omitempty" schema:"-"`
	Notes       []string       `json:"notes,omitempty"`

	done, total int
	password    bool
	limit       int
}

// CurrentCell is the cell that runs.
type CurrentCell struct {
	CellID      string  `json:"cellId"`
	Index       int     `json:"index"`
	Attempt     int     `json:"attempt"`
	ExecutionID string  `json:"execution_id"`
	Seconds     float64 `json:"seconds"`
}

// FailedCell is a cell that did not succeed.
type FailedCell struct {
	CellID      string `json:"cellId"`
	Index       int    `json:"index"`
	Title       string `json:"title,omitempty"`
	Status      string `json:"status"`
	Attempts    int    `json:"attempts"`
	ExecutionID string `json:"execution_id,omitempty"`
	Error       string `json:"error,omitempty"`
}

// PlanCell is a cell of a dry run.
type PlanCell struct {
	CellID   string   `json:"cellId"`
	Index    int      `json:"index"`
	Title    string   `json:"title,omitempty"`
	Run      bool     `json:"run"`
	Why      string   `json:"why,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

func (r *NotebookRun) maxText() int { return r.limit }

func runNotebook() tool {
	return define(spec{
		name: "run_notebook", title: "Run a notebook",
		summary:     "runs a notebook's cells with retries, deadlines and skipped dependants, and saves outputs as they come; the same call continues the run, also on a new VM",
		description: "Use it to run an .ipynb file, or some of its cells, on the VM. Transient errors are retried; cells that depend on a failed one are skipped. Outputs are saved in the file. A call takes about 45 s; while can_continue is true, call again with the same arguments. With cells=\"dirty\" and dry_run=true it shows which cells are out of step with the kernel.",
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
	for _, choice := range []struct{ name, value, choices string }{
		{"on_error", args.OnError, "skip_dependents, stop or continue"},
		{"on_new_kernel", args.OnNew, "rerun or stop"},
		{"on_change", args.OnChange, "continue, refuse or restart"},
	} {
		if !isChoice(choice.value, choice.choices) {
			return s, badChoice(choice.name, choice.value, choice.choices)
		}
	}
	s = nbrun.Spec{
		Cells: args.Cells, Parameters: args.Parameters, OnError: nbrun.OnError(args.OnError), Force: args.Force,
		MaxRetries: int(args.MaxRetries), RetryBudget: int(args.RetryBudget), RetryOn: args.RetryOn,
		CellTimeout: inSeconds(args.CellTimeout), RunTimeout: inSeconds(args.RunTimeout), Restart: args.Restart,
		OnNewKernel: nbrun.OnNewKernel(args.OnNew), OnChange: nbrun.OnChange(args.OnChange),
		StateName: args.State, DryRun: args.DryRun, Runtime: c.target.Name,
	}
	if s.Path, problem = c.notebookPath(args.Path); problem != nil || args.Output == "" {
		return s, problem
	}
	s.Save = nbrun.SaveCopy
	s.OutputPath, problem = c.notebookPath(args.Output)
	return s, problem
}

// isChoice reports whether a value is among choices, which are written as prose.
func isChoice(value, choices string) bool {
	for word := range strings.FieldsSeq(choices) {
		if word = strings.TrimSuffix(word, ","); word == value && word != "or" {
			return true
		}
	}
	return false
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
		Until: time.Now().Add(c.waitBudget()), Progress: steps.set, SaveText: c.saveTexts(s.Path),
		States: nbrun.KernelStates(c.target.Client, c.cfg.CheckpointDir, c.target.Name),
		Output: func(cell nbrun.CellRecord, id string, events []contract.Event) {
			out.addCell(ctx, cell, id, events)
		},
	})
	c.sending = func() { _ = run.Delivered() } // without it, the same call repeats this answer
	out.flush(ctx)
	c.warnOfEnd(outcome.Execution.SessionMinutesLeft)
	c.kernels.record(c.target.Name, run.Record().Life.KernelID)      // notes mention a new one
	if err != nil && len(outcome.Counts) == 0 && !unreachable(err) { // nothing is known of a run
		return nil, c.notebookProblem(err)
	}
	got := newNotebookRun(outcome, out)
	got.Skipped = skipped(run.Record().Run.Plan, outcome.Status)
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
		o.heading = fmt.Sprintf("[cell %d %s]", cell.Index, cell.Handle)
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
		if part = clipTo(part, progressRunes/3); part != "" {
			line += ", " + part
		}
	}
	return line, amount{int64(p.now.Done), int64(p.now.Total)}
}

// clipped is a line of at most maxTitle characters.
func clipped(s string) string { return clipTo(s, maxTitle) }

func newNotebookRun(o nbrun.Outcome, out *batchOutput) *NotebookRun {
	got := &NotebookRun{
		Status: string(o.Status), Counts: map[string]int{}, Output: out.text(), ReportPath: o.ReportPath, CanContinue: o.CanContinue,
		RetryAt: o.RetryAt, Notes: append(o.Notes, fewer(out.notes)...), SavedFiles: o.SavedFiles,
	}
	for status, n := range o.Counts {
		if n > 0 {
			got.Counts[string(status)] = n
		}
		got.total += n
		if status != nbrun.CellNotRun && status != nbrun.CellQueued && status != nbrun.CellRunning {
			got.done += n
		}
	}
	for _, f := range out.files {
		got.SavedFiles = append(got.SavedFiles, f.Path)
	}
	if n := o.Current; n != nil {
		got.Current = &CurrentCell{n.CellID, n.Index, n.Attempt, n.ExecutionID, *round(n.Seconds, 1000)}
	}
	for _, cell := range o.Failed {
		got.Failed = append(got.Failed, failedCell(cell))
	}
	for _, cell := range o.Plan {
		got.Plan = append(got.Plan, PlanCell{cell.CellID, cell.Index, clipped(cell.Title), cell.Run, clipped(cell.Why), cell.Warnings})
	}
	var cut bool
	if got.Plan, cut = fitList(got.Plan); cut {
		got.Notes = append(got.Notes, "the plan is longer than shown here")
	}
	if o.Prompt != nil {
		text, _ := render.Clip(o.Prompt.Text, contract.MaxBehindPrompt)
		got.InputPrompt, got.password = &text, o.Prompt.Password
	}
	return got
}

// maxSkipped bounds the skipped cells of one answer.
const maxSkipped = 20

// skipped says of each skipped cell of a plan why, unless the status is that of a dry run.
func skipped(plan []nbrun.CellRecord, status nbrun.Status) (all []string) {
	for _, cell := range plan {
		if cell.Status == nbrun.CellSkipped && status != nbrun.StatusPlanned && len(all) < maxSkipped {
			all = append(all, clipped(plain.Line(cell.Problem())))
		}
	}
	return all
}

// failedCell describes a cell that did not succeed.
func failedCell(cell nbrun.CellRecord) FailedCell {
	f := FailedCell{CellID: cell.Handle, Index: cell.Index, Title: clipped(cell.Title), Status: string(cell.Status), Attempts: len(cell.Attempts)}
	if len(cell.Attempts) == 0 {
		return f
	}
	last := cell.Attempts[len(cell.Attempts)-1]
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

func (r *NotebookRun) text(b *strings.Builder) {
	if r.Status == string(nbrun.StatusPlanned) {
		b.WriteString("This is the plan; nothing was run.\n")
	} else {
		fmt.Fprintf(b, "%d of %s done, status %s%s\n", r.done, plain.Count(r.total, "cell"), r.Status, r.countsText())
	}
	if n := r.Current; n != nil {
		fmt.Fprintf(b, "Current: cell %s (index %d), attempt %d, %.3g s, execution_id %s\n", n.CellID, n.Index, n.Attempt, n.Seconds, n.ExecutionID)
	}
	if r.InputPrompt != nil {
		fmt.Fprintf(b, "It asks: %q\n", *r.InputPrompt)
	}
	if r.NextCommand != "" {
		fmt.Fprintf(b, "Next: %s\n", r.NextCommand)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(b, "Cell %s (index %d): %s, %s", f.CellID, f.Index, f.Status, plain.Count(f.Attempts, "attempt"))
		if f.Error != "" {
			fmt.Fprintf(b, ": %s", f.Error)
		}
		b.WriteString("\n")
	}
	for _, why := range r.Skipped {
		fmt.Fprintf(b, "C%s\n", strings.TrimPrefix(why, "c")) // "Cell 3 …", as the lines above
	}
	for _, p := range r.Plan {
		p.write(b)
	}
	section(b, "output", r.Output)
	for _, n := range r.Notes {
		fmt.Fprintf(b, "Note: %s\n", n)
	}
	for _, path := range r.SavedFiles {
		fmt.Fprintf(b, "Saved: %s\n", path)
	}
	if r.ReportPath != "" {
		fmt.Fprintf(b, "Report: %s\n", r.ReportPath)
	}
}

func (p PlanCell) write(b *strings.Builder) {
	verb := "runs"
	if !p.Run {
		verb = "does not run"
	}
	fmt.Fprintf(b, "Cell %s (index %d) %s", p.CellID, p.Index, verb)
	if p.Why != "" {
		fmt.Fprintf(b, ": %s", p.Why)
	}
	b.WriteString("\n")
	for _, w := range p.Warnings {
		fmt.Fprintf(b, "  Warning: %s\n", w)
	}
}
