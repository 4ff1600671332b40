package op

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/relay/runlist"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

type chunkedArgs struct {
	Setup       string `json:"setup_code" default:"" doc:"Runs once per kernel, before the loop."`
	Loop        string `json:"loop_code" default:"" doc:"Runs for each i, without break or await at its top level. The value of result is saved for each i."`
	SetupFile   string `json:"-" default:"" flag:"setup" usage:"run this 'FILE' once per kernel, before the loop"`
	LoopFile    string `json:"-" default:"" flag:"code" usage:"run this 'FILE' for each i; the value of result is saved for each i"`
	N           int64  `json:"n_iterations" default:"0" min:"0" max:"1000000000" doc:"Number of iterations." flag:"iterations,n" usage:"how many iterations"`
	BatchSize   int64  `json:"batch_size" default:"0" min:"0" max:"1000000" doc:"Most iterations of a round (0: 1000), which also ends after about 10 s."`
	Name        string `json:"checkpoint_name" default:"chunked_op" min:"1" max:"200" doc:"Name of the saved progress; alone, it continues the run." arg:"[NAME]"`
	OnChange    string `json:"on_change" default:"refuse" choices:"refuse,continue,restart" doc:"If code or n_iterations changed: continue keeps completed iterations; restart begins at 0, also after the end." flag:"on-change" usage:"the 'ACTION' if code or iterations changed: continue keeps completed iterations; restart begins at 0, also after the end"`
	OnStop      string `json:"on_stop" default:"" choices:"accept,restore,again,skip,continue" doc:"How to continue a run that stopped to ask; see Next step." flag:"on-stop" usage:"the 'ACTION' for a run that stopped to ask: accept, restore, again, skip or continue, as it says then"`
	Independent bool   `json:"independent" default:"false" doc:"No iteration needs what another one left: never stop for variables." flag:"independent" usage:"no iteration needs what another one left: never stop for variables"`
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

	record *chunked.Record
	failed bool // the error says the next step
	room   int  // characters of the values of result
	limit  int  // characters of the text
}

func (r *Chunked) maxText() int { return r.limit }

func runChunked() Operation {
	return operation(spec{
		title:       "Run a loop that survives its VM",
		description: "Use it for long loops that must survive interrupted calls and dead VMs. It runs setup_code once, then loop_code for i = 0 … n_iterations-1. The VM goes on without calls; a call reads the progress for about 45 s. Call again with checkpoint_name until the run is finished. Variables that iterations build up (total += i, xs.append(i)) are kept and restored in a new kernel or VM.",
		Command: Command{Group: "run", Setting: "CHECKPOINT_DIR",
			Short: "Run a loop that survives its VM, or continue one",
			Long: "Run a file for each i = 0, 1, … on the VM, and follow the progress to the end. The VM goes on by itself, also after Ctrl-C or with the laptop closed. With NAME alone, the command comes back to a run, also an agent's, and continues it where it stopped, also on a new VM. Variables that iterations build up are kept and restored.\n" +
				"`colab-relay checkpoints NAME` shows the progress and the values of result.",
			Examples: "  colab-relay loop train --setup setup.py --code step.py -n 1000\n  colab-relay loop train"},
	}, func(ctx context.Context, c *call, args chunkedArgs) (*Chunked, error) {
		if err := errors.Join(fromFile(&args.Setup, args.SetupFile, "setup"), fromFile(&args.Loop, args.LoopFile, "code")); err != nil {
			return nil, err
		}
		return c.chunked(ctx, args)
	})
}

// fromFile replaces code by the content of the file that a flag names.
func fromFile(code *string, file, flag string) error {
	if file == "" {
		return nil
	}
	content, err := bounded.ReadInput(file, chunked.MaxCodeBytes)
	if err != nil {
		return &ArgumentError{"", flag, err}
	}
	*code = string(content)
	return nil
}

// chunked opens the run, continues it for as long as the call may take, and describes its
// progress.
func (c *call) chunked(ctx context.Context, args chunkedArgs) (*Chunked, error) {
	run, err := chunked.Open(c.cfg.CheckpointDir, chunked.Spec{
		Name: args.Name, Setup: args.Setup, Loop: args.Loop, N: args.N, BatchSize: args.BatchSize, Independent: args.Independent,
		OnChange: chunked.OnChange(args.OnChange), OnStop: chunked.OnStop(args.OnStop), Runtime: c.target.Name,
	})
	if err != nil {
		return nil, err
	}
	defer run.Close()
	out := &batchOutput{c: c}
	defer out.close()
	show := c.iterations()
	show(run.Record())
	outcome, err := run.Advance(ctx, c.target.Client, chunked.Options{
		Until: time.Now().Add(c.waitBudget()), Live: c.progress != nil || c.person != nil,
		Output:   func(id string, events []contract.Event) { out.add(ctx, id, events) },
		Progress: show,
		Keeper:   kernelstate.NewKeeper(c.target.Client, c.cfg.CheckpointDir, args.Name, c.target.Name),
		Keep:     c.keepBounds(),
	})
	out.flush(ctx)
	c.warnLost(run.Record(), outcome)
	c.warnOfEnd(outcome.Batch.SessionMinutesLeft)
	c.kernels.record(c.target.Name, run.Record().KernelID) // notes mention a new one
	got := chunkedOf(run.Record())
	got.CheckpointPath, got.ExecutionID, got.Output, got.SavedFiles = run.Path(), outcome.Batch.ExecutionID, out.text(), out.files
	got.Notes = append(append(outcome.Notes, fewer(out.notes)...), got.Notes...)
	got.room, got.limit = 500, c.cfg.TextLimit
	waits := client.WaitsForInput(outcome.Job.Behind)
	if outcome.Batch.Status == contract.StatusWaitingForInput {
		got.Status, waits = string(outcome.Batch.Status), &contract.Behind{ExecutionID: got.ExecutionID}
		if out.prompt != nil {
			got.InputPrompt, waits.Prompt, waits.Password = &out.prompt.Text, out.prompt.Text, out.prompt.Password
			c.prompts.put(got.ExecutionID, out.prompt.Offset)
		}
	}
	if c.person != nil && ctx.Err() != nil && got.CanContinue {
		return got, fmt.Errorf("%w: %s comes back to it", runlist.ErrStillRunning, c.loop(args.Name))
	}
	err = c.chunkedError(got, outcome, err, out.raised)
	switch got.failed = err != nil; {
	case got.failed:
		got.NextCommand = c.loop(args.Name)
	case got.CanContinue:
		got.NextCommand = c.nextOfLoop(args.Name, waits, outcome.Job)
	}
	if c.person != nil && got.CanContinue && err == nil {
		got.failed = true
		return got, fmt.Errorf("%w: %s", runlist.ErrStillRunning, got.NextCommand)
	}
	return got, err
}

// chunkedOf is what the record of a run says.
func chunkedOf(s *chunked.Record) *Chunked {
	got := &Chunked{
		Status: string(s.Status), Completed: min(s.Done, s.N), Remaining: s.Remaining(), CanContinue: s.Status != chunked.StatusFinished,
		ProgressPct: *round(100*float64(min(s.Done, s.N))/float64(s.N), 10), KernelID: s.KernelID,
		TimeSec: *round(s.MeanSeconds*float64(s.Timed), 1000), Results: newest(s.Results), record: s,
	}
	if s.Failure != nil && s.Status != chunked.StatusRunning {
		got.FailedIteration = s.Failure.Iteration
	}
	if s.ResultsDropped > 0 {
		got.Notes = []string{fmt.Sprintf("values of result that were not saved, because all together may have 16 MiB: %d", s.ResultsDropped)}
	}
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

// loop is the call, or the command, that continues a run.
func (c *call) loop(name string) string {
	return c.either(command("run_chunked_operation", "checkpoint_name", name, "runtime_name", c.asked), "`colab-relay loop "+plain.ShellWord(name)+"`")
}

// nextOfLoop returns the step after an answer about a run that has not stopped. waits is the run that
// waits for input; nil for none.
func (c *call) nextOfLoop(name string, waits *contract.Behind, job contract.Job) string {
	switch {
	case waits != nil:
		answer := hint.ForPrompt(waits)
		return fmt.Sprintf("it waits for %s. %s Then %s reads on", hint.Asking(waits), c.either(answer.Model, answer.Person), c.loop(name))
	case job.State == contract.JobWaiting && job.Cause != contract.CauseInput:
		return fmt.Sprintf("the run waits on the VM (%s) and goes on by itself; %s reads on", plain.Quote(job.Reason), c.loop(name))
	}
	return fmt.Sprintf("the VM goes on by itself; %s reads on", c.loop(name))
}

// chunkedError returns the error of the answer; nil if nothing went wrong. raised is the exception
// of the last round, or nil.
func (c *call) chunkedError(r *Chunked, o chunked.Outcome, err error, raised *render.Raised) error {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && !unreachable(err) && r.ExecutionID != "":
		return nil // the VM answered, then the call's time was over
	case unreachable(err):
		p := unread(err, "if the executor ended, a later call continues from the newest copy of the variables")
		p.Hint = c.either(p.Hint, hint.Of(err).Person)
		return p
	default:
		return hint.With(hint.ChunkedRun, "", err)
	}
	if o.Stop == nil {
		return nil
	}
	p := &Problem{Code: r.Status}
	switch s := o.Stop; {
	case s.Asks:
		p.Message = r.asks()
	case s.Execution.ExecutionID == "":
		why := "its job ended as " + r.Status
		if s.Reason != "" {
			why = plain.Quote(s.Reason)
		}
		p.Message = fmt.Sprintf("the run stopped at iteration %d: %s", r.Completed, why)
	default:
		p = runProblem(s.Execution)
		if raised != nil && s.Execution.Status != contract.StatusKernelRestarted {
			p.EName, p.EValue, p.Traceback = raised.EName, raised.EValue, raised.Traceback
		}
		if i := strings.LastIndexByte(p.Traceback, '\n'); s.Refused && i > 0 && strings.Contains(p.Message, p.Traceback[i+1:]) {
			p.Traceback = p.Traceback[:i] // the message has its last line
		}
		p.Message = r.where(s) + " " + p.Message
	}
	if next := c.afterStop(r, p.Code); next != "" {
		p.Hint = next
	}
	return p
}

// afterStop says how a run goes on that stopped for a reason with that code.
func (c *call) afterStop(r *Chunked, code string) string {
	if f := r.record.Failure; f != nil && f.Iteration != nil && len(f.Variables) > 0 {
		code = string(chunked.StatusIncomplete)
	}
	h, _ := hint.About(hint.ChunkedRun, code)
	return c.either(h.Model, h.Person)
}

// asks says what a run asks.
func (r *Chunked) asks() string {
	f := r.record.Failure
	names := chunked.List(f.Variables)
	switch chunked.Status(r.Status) {
	case chunked.StatusVariablesLost:
		why := "there is no copy that has it all"
		if f.Detail != "" {
			why = "the copy that was kept could not be loaded: " + plain.Quote(f.Detail) + ". If classes or functions of other code are missing, run that code again, then call again"
		}
		return fmt.Sprintf("the kernel lacks what %s left in %s, and %s", plain.Count(r.Completed, "iteration"), names, why)
	case chunked.StatusVariablesChanged:
		return fmt.Sprintf("other code changed %s since the last round, so nothing more was run", names)
	}
	return fmt.Sprintf("iteration %d did not end, and may have changed %s", r.Completed, names)
}

// where says where the run stopped.
func (r *Chunked) where(s *chunked.Stop) string {
	switch {
	case r.FailedIteration != nil && s.Execution.Status == contract.StatusFailed:
		return fmt.Sprintf("iteration %d raised an exception:", *r.FailedIteration)
	case r.record.Failure != nil && r.record.Failure.Setup:
		return "the setup code failed:"
	case s.Refused:
		return "nothing was run:"
	case s.Execution.Status == contract.StatusKernelDied || s.Execution.Status == contract.StatusLost:
		// Iterations after the last confirmed one may have run.
		return fmt.Sprintf("the run stopped, with %d iterations confirmed:", r.Completed)
	}
	return fmt.Sprintf("the run stopped at iteration %d:", r.Completed)
}

func (r *Chunked) text(w *words) {
	fmt.Fprintf(w, "%d of %d iterations done (%s%%)", r.Completed, r.Completed+r.Remaining, number(r.ProgressPct))
	if pace := r.record.PaceSeconds; pace > 0 {
		fmt.Fprintf(w, ", %s per iteration", iterationTime(pace))
		if r.Status == string(chunked.StatusRunning) {
			w.WriteString(timeLeft(pace, r.Remaining))
		}
	}
	fmt.Fprintf(w, ", status %s\n", plain.Clip(r.Status, 40))
	if r.NextCommand != "" && !r.failed {
		fmt.Fprintf(w, "Next step: %s\n", r.NextCommand)
	}
	for _, f := range r.SavedFiles {
		fmt.Fprintf(w, "Saved %s: %s\n", f.Kind, f)
	}
	w.notes(r.Notes)
	if r.CheckpointPath != "" {
		fmt.Fprintf(w, "Checkpoint: %s\n", r.CheckpointPath)
	}
	r.values(w)
	w.quote("output", r.Output)
}

// values shows the last values of result, as many as there is room for. Some of the completed
// iterations may have none: they set no result, or it never arrived.
func (r *Chunked) values(w *words) {
	all, lines, room := r.record.Results, []string(nil), r.room
	for _, v := range slices.Backward(all) {
		value := string(v.Value)
		if v.Omitted != "" {
			value = "not saved: " + v.Omitted
		}
		line := fmt.Sprintf("%d: %s\n", v.Iteration, plain.Clip(value, maxLineShown))
		if room -= utf8.RuneCountInString(line); room < 0 {
			break
		}
		lines = append(lines, line)
	}
	heading := fmt.Sprintf("values of result: %d", len(all))
	if int64(len(all)) < r.Completed {
		heading += fmt.Sprintf(", of %d completed iterations", r.Completed)
	}
	if len(lines) < len(all) {
		heading += fmt.Sprintf("; the last %d", len(lines))
	}
	slices.Reverse(lines)
	w.quote(heading, strings.Join(lines, ""))
}

// iterations returns what shows how far a run is, to a person at times.
func (c *call) iterations() func(*chunked.Record) {
	var shown time.Time
	return func(s *chunked.Record) {
		done := amount{min(s.Done, s.N), s.N}
		line := fmt.Sprintf("%d/%d iterations", min(s.Done, s.N), s.N)
		if s.PaceSeconds > 0 {
			line += ", " + iterationTime(s.PaceSeconds) + " each" + timeLeft(s.PaceSeconds, s.Remaining())
		}
		switch {
		case c.person == nil:
			c.progress.measureWith(func() (string, amount) { return line, done })
		case time.Since(shown) > 10*time.Second:
			shown = time.Now()
			c.step(line)
		}
	}
}

// iterationTime writes the time of one iteration: "0.042 s", "3 min 20 s".
func iterationTime(seconds float64) string {
	if seconds < 9.95 {
		return fmt.Sprintf("%.2g s", max(seconds, 1e-4))
	}
	return progress.Duration(inSeconds(min(seconds, 1e9)))
}

// timeLeft estimates how long so many iterations take: ", about 13 min left".
func timeLeft(pace float64, remaining int64) string {
	if left := pace * float64(remaining); left > 0 {
		return ", about " + progress.Duration(inSeconds(min(left, 1e9))) + " left"
	}
	return ""
}

// keepBounds returns the bounds for the runtime of the call.
func (c *call) keepBounds() chunked.Keep {
	keep := c.cfg.Keep
	if pairing.OnLoopback(c.target.URL) {
		keep.TunnelBytes = math.MaxInt64 // there is no tunnel
	}
	return keep
}

// Bounds of what a chunked run's answer shows.
const (
	batchesBytes = 400_000 // of output, collected until the answer is made
	batchFiles   = 20
	batchNotes   = 30
)

// batchOutput collects the output of one call's executions: one Collector for each execution,
// whose text is appended when the execution ends.
type batchOutput struct {
	c       *call
	id      string
	col     *render.Collector // nil until the first event of a batch
	parts   strings.Builder
	heading string  // of the execution's output, if it is not empty
	blocks  []block // of executions with a heading, each shortened by itself
	files   []render.File
	notes   []string
	raised  *render.Raised // by the last batch
	prompt  *render.Prompt // while it waits for input
}

// add appends events of the execution id, in order. A person reads them at once, beside the answer.
func (o *batchOutput) add(ctx context.Context, id string, events []contract.Event) {
	if o.c.person != nil {
		for _, ev := range events {
			if ev.Type == contract.EventInputRequest {
				o.prompt = &render.Prompt{Text: ev.Prompt, Password: ev.Password, Offset: ev.Offset}
			}
			fmt.Fprint(o.c.person.Streams.Err, plain.Document(ev.Text+ev.Prompt+ensureLine(strings.Join(ev.Traceback, "\n"))))
		}
		return
	}
	if o.col == nil || o.id != id {
		o.flush(ctx)
		o.id, o.col = id, render.New(render.Options{Dir: o.c.outputDir(o.c.target.Client.InstanceID(), id), From: events[0].Offset, Limit: viewLimit(o.c.cfg.TextLimit)})
	}
	for _, ev := range events {
		o.col.Add(ev)
	}
}

// flush renders the execution collected last.
func (o *batchOutput) flush(ctx context.Context) {
	if o.col == nil {
		return
	}
	view := o.col.View(ctx, o.c.target.Client.Blobs(o.id))
	o.col = nil
	o.print(view)
	o.raised = view.Error
	o.prompt = view.Prompt
	o.files = append(o.files, view.Files...)
	o.files = o.files[max(0, len(o.files)-batchFiles):]
	if view.Truncated {
		o.note("output of %s is shortened: get_execution with this id and offset=%d shows the rest", o.id, view.NextOffset)
	}
	for _, n := range view.Notes {
		o.note("%s", n)
	}
	o.show(view.Pictures)
}

// show keeps the newest pictures for the answer. Further batches may run for long until then, so
// they count against the budget of displays instead of taking a turn.
func (o *batchOutput) show(pictures []render.Picture) {
	for _, p := range pictures {
		if len(o.c.pictures) == render.MaxPictures {
			o.c.free(int64(len(o.c.pictures[0].Data)))
			o.c.pictures = o.c.pictures[1:]
		}
		if !memory.Displays.Take(int64(len(p.Data))) {
			o.note("a picture is saved but not shown, because other calls hold too many at this moment")
			continue
		}
		o.c.displayed += int64(len(p.Data))
		o.c.pictures = append(o.c.pictures, p)
	}
}

// print appends an execution's text: stdout, stderr and display outputs; with a heading also the
// result and the traceback.
func (o *batchOutput) print(view render.View) {
	var b strings.Builder
	b.WriteString(ensureLine(view.Stdout))
	if view.Stderr != "" {
		b.WriteString("[stderr]\n" + ensureLine(view.Stderr))
	}
	for _, out := range view.Outputs {
		b.WriteString(ensureLine(out.Text))
	}
	if o.heading != "" {
		b.WriteString(ensureLine(view.Result))
	}
	if o.heading != "" && view.Error != nil {
		b.WriteString(ensureLine(view.Error.Traceback))
	}
	if o.heading != "" && b.Len() > 0 {
		o.parts.WriteString("[" + o.heading + "]\n")
		o.blocks = append(o.blocks, block{heading: "output of " + o.heading, text: b.String()})
		o.blocks = o.blocks[max(0, len(o.blocks)-mostBlocks):]
	}
	o.parts.WriteString(b.String())
	if o.parts.Len() > batchesBytes {
		short := o.text()
		o.parts.Reset()
		o.parts.WriteString(short)
	}
}

// mostBlocks bounds the cells whose output one answer shows: the last ones.
const mostBlocks = 50

// shown returns the blocks, shortened so that all of them fit.
func (o *batchOutput) shown() []block {
	each := max(leastQuoted, viewLimit(o.c.cfg.TextLimit)/max(1, len(o.blocks)))
	most := max(1, viewLimit(o.c.cfg.TextLimit)/each)
	all := slices.Clone(o.blocks[max(0, len(o.blocks)-most):])
	for i := range all {
		all[i].text, _ = render.Clip(all[i].text, each)
	}
	return all
}

func (o *batchOutput) note(format string, args ...any) {
	if len(o.notes) < batchNotes {
		o.notes = append(o.notes, fmt.Sprintf(format, args...))
	}
}

// text returns the output of all batches, shortened so that a traceback also fits.
func (o *batchOutput) text() string {
	limit := viewLimit(o.c.cfg.TextLimit)
	if o.raised != nil {
		limit -= min(len(o.raised.Traceback), limit/2)
	}
	text, _ := render.Clip(o.parts.String(), limit)
	return text
}

func (o *batchOutput) close() {
	if o.col != nil {
		o.col.Close()
	}
}
