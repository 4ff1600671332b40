package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

type chunkedArgs struct {
	Setup     string `json:"setup_code" doc:"Runs once per kernel, before the loop: imports, data, models. May be empty."`
	Loop      string `json:"loop_code" min:"1" doc:"Runs for each i; no break or await at the top level. What it assigns to result is saved for each i."`
	N         int64  `json:"n_iterations" min:"1" max:"1000000000" doc:"Number of iterations."`
	BatchSize int64  `json:"batch_size" default:"10" min:"1" max:"1000000" doc:"Most iterations per execution, which also ends after about 30 s; 100000 for iterations of milliseconds."`
	Name      string `json:"checkpoint_name" default:"chunked_op" min:"1" max:"200" doc:"Name of the saved progress; the same name resumes."`
	OnChange  string `json:"on_change" default:"refuse" max:"20" doc:"If code or n_iterations changed: refuse; continue (keep completed iterations); restart (at 0, also a finished run)."`
	OnNew     string `json:"on_new_kernel" default:"" max:"20" doc:"If a new kernel lacks variables that iterations build on: stop if omitted; continue (right if iterations are independent); restart (at 0)."`
	target
}

// Chunked is the answer of run_chunked_operation.
type Chunked struct {
	Status          string          `json:"status"`    // running (call again), finished, waiting_for_input, or the status of the batch that stopped the run: failed, timed_out, interrupted, cancelled, kernel_died, kernel_restarted, lost; variables_lost: the kernel lacks variables that iterations build on
	Completed       int64           `json:"completed"` // iterations that the VM has confirmed: 0 to completed-1
	Remaining       int64           `json:"remaining"`
	ProgressPct     float64         `json:"progress_pct"`
	Output          string          `json:"output"`                    // output of this call's batches; head and tail if it is long
	CanContinue     bool            `json:"can_continue"`              // iterations remain, and calling again continues with them
	NextCommand     string          `json:"next_command"`              // the next step; empty when the run is finished
	FailedIteration *int64          `json:"failed_iteration,omitzero"` // the iteration that raised an exception; it is not counted; absent if none did
	CheckpointPath  string          `json:"checkpoint_path"`
	ExecutionID     string          `json:"execution_id"` // the last batch on the VM, for get_execution and interrupt_execution
	KernelID        string          `json:"kernel_id"`
	TimeSec         float64         `json:"execution_time_sec"`     // total time of the timed iterations, in all calls
	Results         []chunked.Value `json:"results,omitzero"`       // the newest values of result; get_checkpoint and the file have more
	InputPrompt     *string         `json:"input_prompt,omitempty"` // what input() asks, with status waiting_for_input; provide_input answers
	SavedFiles      []render.File   `json:"saved_files,omitempty"`  // pictures and full texts, on the relay's machine
	Notes           []string        `json:"notes,omitempty"`        // what else happened: iterations that run again and why, omitted output

	password bool // the prompt asks for a password
	limit    int  // characters of the text
}

func (r *Chunked) maxText() int { return r.limit }

func runChunked() tool {
	return define(spec{
		name: "run_chunked_operation", title: "Run a loop in resumable batches",
		summary:     "runs `setup_code` once per kernel and `loop_code` for each `i`, in batches, and records the progress on the laptop; the same call continues the run, also on a new VM",
		description: "Use it for long loops that must survive interrupted calls and dead VMs: training epochs, files, API calls. It runs setup_code once, then loop_code for i = 0 … n_iterations-1 in batches, and saves the progress on this computer. A call takes about 45 s; while can_continue is true, call again with the same arguments. Variables that iterations build up (total += i, xs.append(i)) are saved between batches and restored in a new kernel or VM.",
		destructive: true, openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args chunkedArgs) (*Chunked, *Problem) {
		switch chunked.OnChange(args.OnChange) {
		case chunked.Refuse, chunked.Continue, chunked.Restart:
		default:
			return nil, badChoice("on_change", args.OnChange, "refuse, continue or restart")
		}
		switch chunked.OnNewKernel(args.OnNew) {
		case chunked.NewKernelStop, chunked.NewKernelContinue, chunked.NewKernelRestart:
		default:
			return nil, badChoice("on_new_kernel", args.OnNew, "continue or restart")
		}
		return c.chunked(ctx, args)
	})
}

func badChoice(argument, value, choices string) *Problem {
	return &Problem{
		Code: codeBadRequest, Message: fmt.Sprintf("bad arguments: %q is not a value of %q", clipName(value), argument),
		Hint: fmt.Sprintf("Use %s, or omit %s.", choices, argument),
	}
}

// chunked opens the run, continues it for as long as the call may take, and describes its
// progress.
func (c *call) chunked(ctx context.Context, args chunkedArgs) (*Chunked, *Problem) {
	run, err := chunked.Open(c.cfg.CheckpointDir, chunked.Spec{
		Name: args.Name, Setup: args.Setup, Loop: args.Loop, N: args.N, BatchSize: args.BatchSize,
		OnChange: chunked.OnChange(args.OnChange), OnNewKernel: chunked.OnNewKernel(args.OnNew), Runtime: c.target.Name,
	})
	if err != nil {
		return nil, problemOf(err)
	}
	defer run.Close()
	out := &batchOutput{c: c}
	defer out.close()
	out.progress(run.Record())
	outcome, err := run.Advance(ctx, c.target.Client, chunked.Options{
		Until: time.Now().Add(c.waitBudget()), Live: c.progress != nil,
		Output:   func(id string, events []contract.Event) { out.add(ctx, id, events) },
		Progress: out.progress,
		Keeper:   kernelstate.NewKeeper(c.target.Client, c.cfg.CheckpointDir, args.Name, c.target.Name),
		Keep:     c.keepBounds(),
	})
	out.flush(ctx)
	c.warnLost(run.Record(), outcome)
	c.warnOfEnd(outcome.Batch.SessionMinutesLeft)
	c.kernels.record(c.target.Name, run.Record().KernelID) // notes mention a new one
	got := newChunked(run, args.BatchSize, outcome, out)
	got.limit = c.cfg.TextLimit
	return got, got.problem(outcome, err, out)
}

func newChunked(run *chunked.Run, batchSize int64, o chunked.Outcome, out *batchOutput) *Chunked {
	s := run.Record()
	got := &Chunked{
		Status: string(s.Status), Completed: min(s.Done, s.N), Remaining: s.Remaining(),
		ProgressPct: *round(100*float64(min(s.Done, s.N))/float64(s.N), 10),
		Output:      out.text(), CheckpointPath: run.Path(), ExecutionID: o.Batch.ExecutionID, KernelID: s.KernelID,
		TimeSec: *round(s.MeanSeconds*float64(s.Timed), 1000), Results: newest(s.Results),
		SavedFiles: out.files, Notes: append(o.Notes, fewer(out.notes)...),
	}
	if o.Batch.Status == contract.StatusWaitingForInput {
		got.Status = string(o.Batch.Status)
		if out.prompt != nil {
			got.InputPrompt, got.password = &out.prompt.Text, out.prompt.Password
		}
	}
	if s.ResultsDropped > 0 {
		got.Notes = append(got.Notes, fmt.Sprintf("values of result that were not saved, because all together may have 16 MiB: %d", s.ResultsDropped))
	}
	if hint := batchHint(s, batchSize); hint != "" {
		got.Notes = append(got.Notes, hint)
	}
	got.CanContinue = s.Status != chunked.StatusFinished
	if o.Stop != nil {
		got.FailedIteration = o.Stop.Iteration
	}
	got.NextCommand = got.next(o)
	return got
}

// fewer returns the first of a call's notes on output; each batch may produce some.
func fewer(notes []string) []string {
	const most = 4
	if len(notes) <= most {
		return notes
	}
	return append(notes[:most:most], fmt.Sprintf("further notes on output: %d", len(notes)-most))
}

// batchHint advises a larger batch_size if the change from batch to batch takes most of the
// time.
func batchHint(s *chunked.Record, batchSize int64) string {
	const (
		least, good = 0.5, 5    // seconds of a batch
		most        = 1_000_000 // iterations
	)
	batch := s.MeanSeconds * float64(batchSize)
	if s.Timed < 20 || batch > least || s.Remaining() < 10*batchSize || batchSize == most {
		return ""
	}
	better := int64(most)
	if s.MeanSeconds*most > good {
		better = int64(good / s.MeanSeconds)
	}
	return fmt.Sprintf("batches of %d iterations take %.1g s each: batch_size=%d makes the run faster", batchSize, batch, better)
}

// newest returns the last values, few and small enough for an answer.
func newest(all []chunked.Value) []chunked.Value {
	const most, bytes = 5, 4 << 10
	first, used := len(all), 0
	for first > 0 && len(all)-first < most {
		if used += len(all[first-1].Value); used > bytes {
			break
		}
		first--
	}
	return append([]chunked.Value{}, all[first:]...)
}

// next returns the step after this answer.
func (r *Chunked) next(o chunked.Outcome) string {
	const again = "call run_chunked_operation again with the same arguments"
	switch {
	case !r.CanContinue:
		return ""
	case r.Status == string(contract.StatusWaitingForInput) && r.password:
		return fmt.Sprintf("the code asks for a password. %s Then %s", hint.ForPassword(r.ExecutionID), again)
	case r.Status == string(contract.StatusWaitingForInput):
		return fmt.Sprintf("call provide_input with execution_id %q, then %s", r.ExecutionID, again)
	case client.BehindInput(o.Batch) != nil:
		b := client.BehindInput(o.Batch)
		return fmt.Sprintf("the batch waits for %s. %s Then %s", hint.Asking(b), hint.ForPrompt(b).Model, again)
	case o.Stop != nil && o.Stop.Lost != nil:
		return "restore_kernel_state, or run_chunked_operation with on_new_kernel=\"restart\" or \"continue\": see the error's hint"
	case o.Stop != nil && o.Stop.Execution.Status == contract.StatusFailed:
		return fmt.Sprintf("call run_chunked_operation with corrected code and on_change=\"continue\" to continue at iteration %d, or with the same arguments to try it again", r.Completed)
	}
	return again + " (without on_change)"
}

// problem returns the error of the answer; nil if nothing went wrong.
func (r *Chunked) problem(o chunked.Outcome, err error, out *batchOutput) *Problem {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && !unreachable(err) && r.ExecutionID != "":
		return nil // the VM answered, then the call's time was over
	case unreachable(err):
		p := problemOf(err).copy()
		p.Message = fmt.Sprintf("the VM could not be reached (%s); completed iterations are saved, and a running batch continues on the VM", p.Message)
		return p
	default:
		return problemAbout(hint.ChunkedRun, err)
	}
	if o.Stop == nil {
		return nil
	}
	if o.Stop.Lost != nil {
		return r.variablesLost(o.Stop.Lost)
	}
	p := withHintAbout(hint.ChunkedRun, runProblem(o.Stop.Execution), nil)
	if e := out.raised; e != nil && o.Stop.Execution.Status != contract.StatusKernelRestarted {
		p.EName, p.EValue, p.Traceback = e.EName, e.EValue, e.Traceback
	}
	if i := strings.LastIndexByte(p.Traceback, '\n'); o.Stop.Refused && i > 0 && strings.Contains(p.Message, p.Traceback[i+1:]) {
		p.Traceback = p.Traceback[:i] // the message has its last line
	}
	p.Message = fmt.Sprintf("%s %s", r.where(o.Stop), p.Message)
	return p
}

// where says where the run stopped.
func (r *Chunked) where(s *chunked.Stop) string {
	switch {
	case s.Iteration != nil:
		return fmt.Sprintf("iteration %d raised an exception:", *s.Iteration)
	case s.Setup:
		return "the setup code failed:"
	case s.Refused:
		return "nothing was run:"
	}
	return fmt.Sprintf("the run stopped at iteration %d:", r.Completed)
}

func (r *Chunked) text(b *strings.Builder) {
	fmt.Fprintf(b, "%d of %d iterations done (%s%%), status %s\n", r.Completed, r.Completed+r.Remaining, number(r.ProgressPct), r.Status)
	if r.NextCommand != "" {
		fmt.Fprintf(b, "Next: %s\n", r.NextCommand)
	}
	section(b, "output", r.Output)
	for _, v := range r.Results {
		value := string(v.Value)
		if v.Omitted != "" {
			value = "not saved: " + v.Omitted
		}
		value, _ = render.Clip(value, 300)
		fmt.Fprintf(b, "result of %d: %s\n", v.Iteration, value)
	}
	for _, f := range r.SavedFiles {
		fmt.Fprintf(b, "Saved %s: %s\n", f.Kind, f.Path)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(b, "Note: %s\n", n)
	}
	fmt.Fprintf(b, "Checkpoint: %s\n", r.CheckpointPath)
}
