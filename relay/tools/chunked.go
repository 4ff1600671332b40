package tools

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

type chunkedArgs struct {
	Setup       string `json:"setup_code" default:"" doc:"Runs once per kernel, before the loop."`
	Loop        string `json:"loop_code" default:"" doc:"Runs for each i, without break or await at its top level. The value of result is saved for each i."`
	N           int64  `json:"n_iterations" default:"0" min:"0" max:"1000000000" doc:"Number of iterations."`
	BatchSize   int64  `json:"batch_size" default:"0" min:"0" max:"1000000" doc:"Most iterations of a round (0: 1000), which also ends after about 10 s."`
	Name        string `json:"checkpoint_name" default:"chunked_op" min:"1" max:"200" doc:"Name of the saved progress; alone, it continues the run."`
	OnChange    string `json:"on_change" default:"refuse" choices:"refuse,continue,restart" doc:"If code or n_iterations changed: continue keeps completed iterations; restart begins at 0, also after the end."`
	OnStop      string `json:"on_stop" default:"" choices:"accept,restore,again,skip,continue" doc:"How to continue a run that stopped to ask; see Next step."`
	Independent bool   `json:"independent" default:"false" doc:"No iteration needs what another one left: never stop for variables."`
	target
}

// Chunked is the answer of run_chunked_operation.
type Chunked struct {
	Status          string          `json:"status"`    // running (call again), finished, waiting_for_input, or why the run stopped: failed, timed_out, interrupted, cancelled, kernel_died, kernel_restarted, lost; or it asks (on_stop): variables_lost, variables_changed, iteration_incomplete
	Completed       int64           `json:"completed"` // iterations that the VM has confirmed: 0 to completed-1
	Remaining       int64           `json:"remaining"`
	ProgressPct     float64         `json:"progress_pct"`
	Output          string          `json:"output"`                    // what this call read of it; head and tail if it is long
	CanContinue     bool            `json:"can_continue"`              // iterations remain, and calling again continues with them
	NextCommand     string          `json:"next_command"`              // the next step; empty when the run is finished
	FailedIteration *int64          `json:"failed_iteration,omitzero"` // the iteration that raised an exception; it is not counted; absent if none did
	CheckpointPath  string          `json:"checkpoint_path"`
	ExecutionID     string          `json:"execution_id"` // the setup or round that was read last, for get_execution and interrupt_execution
	KernelID        string          `json:"kernel_id"`
	TimeSec         float64         `json:"execution_time_sec"`     // total time of the timed iterations, in all calls
	Results         []chunked.Value `json:"results,omitzero"`       // the newest values of result; get_checkpoint and the file have more
	InputPrompt     *string         `json:"input_prompt,omitempty"` // what input() asks, with status waiting_for_input; provide_input answers
	SavedFiles      []render.File   `json:"saved_files,omitempty"`  // pictures and full texts, on the relay's machine
	Notes           []string        `json:"notes,omitempty"`        // what else happened: iterations that run again and why, omitted output

	failure  *chunked.Failure
	password bool // the prompt asks for a password
	limit    int  // characters of the text
	pace     float64
}

func (r *Chunked) maxText() int { return r.limit }

func runChunked() tool {
	return define(spec{
		name: "run_chunked_operation", title: "Run a loop that survives its VM",
		summary:     "runs `setup_code` once per kernel and `loop_code` for each `i`; the VM goes on by itself, also with the laptop closed; `checkpoint_name` alone reads the progress and continues the run, also on a new VM",
		description: "Use it for long loops that must survive interrupted calls and dead VMs. It runs setup_code once, then loop_code for i = 0 … n_iterations-1. The VM goes on without calls; a call reads the progress for about 45 s. Call again with checkpoint_name until the run is finished. Variables that iterations build up (total += i, xs.append(i)) are kept and restored in a new kernel or VM.",
		destructive: true, openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args chunkedArgs) (*Chunked, *Problem) {
		return c.chunked(ctx, args)
	})
}

// chunked opens the run, continues it for as long as the call may take, and describes its
// progress.
func (c *call) chunked(ctx context.Context, args chunkedArgs) (*Chunked, *Problem) {
	run, err := chunked.Open(c.cfg.CheckpointDir, chunked.Spec{
		Name: args.Name, Setup: args.Setup, Loop: args.Loop, N: args.N, BatchSize: args.BatchSize, Independent: args.Independent,
		OnChange: chunked.OnChange(args.OnChange), OnStop: chunked.OnStop(args.OnStop), Runtime: c.target.Name,
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
	got := newChunked(run, outcome, out)
	got.limit = c.cfg.TextLimit
	return got, got.problem(outcome, err, out)
}

func newChunked(run *chunked.Run, o chunked.Outcome, out *batchOutput) *Chunked {
	s := run.Record()
	got := &Chunked{
		Status: string(s.Status), Completed: min(s.Done, s.N), Remaining: s.Remaining(),
		ProgressPct: *round(100*float64(min(s.Done, s.N))/float64(s.N), 10),
		Output:      out.text(), CheckpointPath: run.Path(), ExecutionID: o.Batch.ExecutionID, KernelID: s.KernelID,
		TimeSec: *round(s.MeanSeconds*float64(s.Timed), 1000), Results: newest(s.Results),
		SavedFiles: out.files, Notes: append(o.Notes, fewer(out.notes)...), pace: s.PaceSeconds,
	}
	if o.Batch.Status == contract.StatusWaitingForInput {
		got.Status = string(o.Batch.Status)
		if out.prompt != nil {
			got.InputPrompt, got.password = &out.prompt.Text, out.prompt.Password
			out.c.prompts.put(got.ExecutionID, out.prompt.Offset)
		}
	}
	if s.ResultsDropped > 0 {
		got.Notes = append(got.Notes, fmt.Sprintf("values of result that were not saved, because all together may have 16 MiB: %d", s.ResultsDropped))
	}
	got.CanContinue = s.Status != chunked.StatusFinished
	if o.Stop != nil && s.Failure != nil {
		got.FailedIteration, got.failure = s.Failure.Iteration, s.Failure
	}
	got.NextCommand = got.next(o)
	return got
}

// fewer returns the first of a call's notes on output; each round may produce some.
func fewer(notes []string) []string {
	const most = 4
	if len(notes) <= most {
		return notes
	}
	return append(notes[:most:most], fmt.Sprintf("further notes on output: %d", len(notes)-most))
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
	const again = "call run_chunked_operation again with this checkpoint_name"
	switch {
	case !r.CanContinue:
		return ""
	case r.Status == string(contract.StatusWaitingForInput) && r.password:
		return fmt.Sprintf("the code asks for a password. %s Then %s", hint.ForPassword(r.ExecutionID), again)
	case r.Status == string(contract.StatusWaitingForInput):
		return fmt.Sprintf("call provide_input with execution_id %q, then %s", r.ExecutionID, again)
	case client.WaitsForInput(o.Job.Behind) != nil:
		b := client.WaitsForInput(o.Job.Behind)
		return fmt.Sprintf("the run waits for %s. %s Then %s", hint.Asking(b), hint.ForPrompt(b).Model, again)
	case o.Job.State == contract.JobWaiting && o.Job.Cause != contract.CauseInput:
		return fmt.Sprintf("the run waits on the VM (%s) and goes on by itself; %s", plain.Quote(o.Job.Reason), again)
	case o.Stop != nil && o.Stop.Asks:
		return waysOn(chunked.Status(r.Status))
	case o.Stop != nil && r.failure != nil && r.failure.Iteration != nil && len(r.failure.Variables) > 0:
		return fmt.Sprintf("%s and on_stop=\"again\", \"skip\" or \"restore\": see the error's hint", again)
	case o.Stop != nil && o.Stop.Execution.Status == contract.StatusFailed && r.Completed == 0:
		return "call run_chunked_operation with corrected code; with checkpoint_name alone it is tried again as it is"
	case o.Stop != nil && o.Stop.Execution.Status == contract.StatusFailed:
		return fmt.Sprintf("call run_chunked_operation with corrected code and on_change=\"continue\" to continue at iteration %d; with checkpoint_name alone it is tried again", r.Completed)
	case o.Stop != nil:
		return again
	}
	return "the VM goes on by itself; " + again + " to read on"
}

// waysOn says how a run goes on that stopped to ask.
func waysOn(s chunked.Status) string {
	switch s {
	case chunked.StatusVariablesLost:
		return "see the error's hint"
	case chunked.StatusVariablesChanged:
		return "run_chunked_operation with on_stop=\"accept\" or \"restore\": see the error's hint"
	}
	return "run_chunked_operation with on_stop=\"again\", \"skip\" or \"restore\": see the error's hint"
}

// problem returns the error of the answer; nil if nothing went wrong.
func (r *Chunked) problem(o chunked.Outcome, err error, out *batchOutput) *Problem {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && !unreachable(err) && r.ExecutionID != "":
		return nil // the VM answered, then the call's time was over
	case unreachable(err):
		return unread(err, "if the executor ended, a later call continues from the newest copy of the variables")
	default:
		return problemAbout(hint.ChunkedRun, err)
	}
	switch {
	case o.Stop == nil:
		return nil
	case o.Stop.Asks:
		return r.asks()
	case o.Stop.Execution.ExecutionID == "":
		why := "its job ended as " + r.Status
		if o.Stop.Reason != "" {
			why = plain.Quote(o.Stop.Reason)
		}
		return withHintAbout(hint.ChunkedRun, &Problem{Code: r.Status, Message: fmt.Sprintf("the run stopped at iteration %d: %s", r.Completed, why)}, nil)
	}
	p := withHintAbout(hint.ChunkedRun, runProblem(o.Stop.Execution), nil)
	if e := out.raised; e != nil && o.Stop.Execution.Status != contract.StatusKernelRestarted {
		p.EName, p.EValue, p.Traceback = e.EName, e.EValue, e.Traceback
	}
	if i := strings.LastIndexByte(p.Traceback, '\n'); o.Stop.Refused && i > 0 && strings.Contains(p.Message, p.Traceback[i+1:]) {
		p.Traceback = p.Traceback[:i] // the message has its last line
	}
	p.Message = fmt.Sprintf("%s %s", r.where(o.Stop), p.Message)
	if f := r.failure; f != nil && f.Iteration != nil && len(f.Variables) > 0 {
		p.Hint = incompleteHint(f)
	}
	return p
}

// where says where the run stopped.
func (r *Chunked) where(s *chunked.Stop) string {
	switch {
	case r.FailedIteration != nil && s.Execution.Status == contract.StatusFailed:
		return fmt.Sprintf("iteration %d raised an exception:", *r.FailedIteration)
	case r.failure != nil && r.failure.Setup:
		return "the setup code failed:"
	case s.Refused:
		return "nothing was run:"
	case s.Execution.Status == contract.StatusKernelDied || s.Execution.Status == contract.StatusLost:
		// Iterations after the last confirmed one may have run.
		return fmt.Sprintf("the run stopped, with %d iterations confirmed:", r.Completed)
	}
	return fmt.Sprintf("the run stopped at iteration %d:", r.Completed)
}

func (r *Chunked) text(b *words) {
	fmt.Fprintf(b, "%s of %s iterations done (%s%%)%s, status %s\n", thousands(r.Completed), thousands(r.Completed+r.Remaining), number(r.ProgressPct), r.paceText(), r.Status)
	if r.NextCommand != "" {
		fmt.Fprintf(b, "Next step: %s\n", r.NextCommand)
	}
	var results strings.Builder
	for _, v := range r.Results {
		value := string(v.Value)
		if v.Omitted != "" {
			value = "not saved: " + v.Omitted
		}
		value, _ = render.Clip(value, 300)
		fmt.Fprintf(&results, "%d: %s\n", v.Iteration, value)
	}
	for _, f := range r.SavedFiles {
		fmt.Fprintf(b, "Saved %s: %s\n", f.Kind, f)
	}
	b.notes(r.Notes)
	fmt.Fprintf(b, "Checkpoint: %s\n", r.CheckpointPath)
	b.quote("result by iteration, the last ones", results.String())
	b.quote("output", r.Output)
}

// paceText says how long an iteration takes on the VM and, while the run goes on, how long the
// others will take; empty if no iteration was timed.
func (r *Chunked) paceText() string {
	if !(r.pace > 0) {
		return ""
	}
	text := ", " + iterationTime(r.pace) + " per iteration"
	if r.Status == string(chunked.StatusRunning) {
		text += timeLeft(r.pace, r.Remaining)
	}
	return text
}

// iterationTime writes the time of one iteration: "under 0.1 ms", "42 ms", "0.42 s", "3 min 20 s".
func iterationTime(seconds float64) string {
	switch {
	case seconds < 1e-4:
		return "under 0.1 ms"
	case seconds < 0.0995:
		return fmt.Sprintf("%.2g ms", seconds*1000)
	case seconds < 9.95:
		return fmt.Sprintf("%.2g s", seconds)
	}
	return progress.Duration(inSeconds(min(seconds, 1e9)))
}

// timeLeft estimates how long so many iterations take: ", about 13 min left".
func timeLeft(pace float64, remaining int64) string {
	const (
		day  = 24 * 3600
		most = 100 * day
	)
	switch left := pace * float64(remaining); {
	case remaining <= 0 || !(pace > 0):
		return ""
	case left < 1:
		return ", under 1 s left"
	case left < 59.5:
		return fmt.Sprintf(", about %.0f s left", left)
	case left < 3570:
		return fmt.Sprintf(", about %.0f min left", left/60)
	case left < 2*day:
		tens := int64(left/600 + 0.5)
		return fmt.Sprintf(", about %d h %d min left", tens/6, tens%6*10)
	case left < most:
		return fmt.Sprintf(", about %.0f days left", left/day)
	}
	return ", over 100 days left"
}

// thousands writes a number with commas: "2,000".
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
