package op

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// quickTimeout is the deadline of run_code_quick. The VM enforces it.
const quickTimeout = 120 * time.Second

type quickArgs struct {
	Code string `json:"code" min:"1" doc:"Python; lines with ! or % work as in notebooks."`
	target
}

func runQuick() Operation {
	return operation(spec{
		title:       "Run Python (up to 2 minutes)",
		description: "Runs Python on the remote VM for up to two minutes: look at data, compute, plot. It answers with stdout, stderr, the last expression's value, pictures and errors. Variables persist between calls. After 120 s the code is interrupted; variables are kept.",
	}, func(ctx context.Context, c *call, args quickArgs) (*Run, error) {
		run, problem := c.submit(ctx, args.Code, quickTimeout)
		return run, problem.orNil()
	})
}

type longArgs struct {
	Code       string  `json:"code" min:"1" doc:"Python; lines with ! or % work as in notebooks."`
	Checkpoint string  `json:"checkpoint_name" default:"" max:"200" doc:"Also save the answer on this computer under this name."`
	Timeout    float64 `json:"timeout_seconds" default:"600" min:"1" max:"86400" doc:"The code is interrupted then; variables are kept."`
	target
}

func runLong() Operation {
	return operation(spec{
		title:       "Run Python (long)",
		description: "Runs Python on the remote VM for minutes to hours: training, downloads, large computations. It answers early with status running and the output so far; the run continues on the VM whatever happens to this call, and get_execution with wait_seconds=45 reads on. One run executes at a time; others wait.",
	}, func(ctx context.Context, c *call, args longArgs) (*Run, error) {
		timeout := time.Duration(args.Timeout * float64(time.Second))
		if args.Checkpoint == "" {
			run, problem := c.submit(ctx, args.Code, timeout)
			return run, problem.orNil()
		}
		unlock, err := checkpoint.Lock(c.cfg.CheckpointDir, args.Checkpoint)
		switch {
		case err == nil:
			defer unlock()
		case errors.Is(err, checkpoint.ErrBusy):
			return nil, err // before anything runs
		}
		run, problem := c.submit(ctx, args.Code, timeout)
		if run != nil {
			if !contract.Status(run.Status).Finished() {
				c.saves.put(c.saveKey(run.ExecutionID), args.Checkpoint)
			}
			c.saveLocked(run, problem, args.Checkpoint)
		}
		return run, problem.orNil()
	})
}

// submit runs code and waits for its end as long as this call may.
func (c *call) submit(ctx context.Context, code string, timeout time.Duration) (*Run, *Problem) {
	return c.submitWatched(ctx, contract.Submit{Code: code, TimeoutSeconds: timeout.Seconds()}, nil)
}

// submitWatched is submit of a run that watch, unless it is nil, gets every event of that is
// read. It sets how the run is identified and waited for.
func (c *call) submitWatched(ctx context.Context, s contract.Submit, watch func(contract.Event)) (*Run, *Problem) {
	if len(s.Code) > maxCodeBytes {
		return nil, &Problem{Code: string(contract.CodeTooLarge), Message: fmt.Sprintf("the code is over %d MiB", maxCodeBytes>>20), Hint: hint.ForRefusal(&contract.Error{Code: contract.CodeTooLarge}).Model}
	}
	same := unansweredSubmit{c.target.Name, sha256.Sum256([]byte(s.Code)), inSeconds(s.TimeoutSeconds)}
	earlier := c.unsure.take(same)
	var left givenUpCall // whose run this call waits for
	if earlier.requestID == "" {
		g, underWay, err := c.leftRun(ctx, s.Code)
		if err != nil {
			return nil, unsubmitted(err, false, "")
		}
		if earlier.requestID, earlier.instance = g.RequestID, g.Instance; underWay {
			left = g
		}
	}
	wait := c.waitBudget()
	s.RequestID, s.WaitSeconds, s.BehindInput = cmp.Or(earlier.requestID, rand.Text()), wait.Seconds(), true
	if c.progress != nil { // it shows lines of output before the end
		s.OutputAfterSeconds = min(wait, quietFor).Seconds()
	}
	until := time.Now().Add(wait)
	sentTo := c.target.Client.InstanceID()
	e, err := c.submitFor(ctx, earlier, s)
	sentTo = cmp.Or(earlier.instance, sentTo, c.target.Client.InstanceID())
	c.left = &givenUpCall{Runtime: c.target.Name, Code: codeSum(s.Code), RequestID: s.RequestID, Instance: sentTo}
	if earlier.requestID != "" && refusalCode(err) == contract.CodeNewInstance {
		c.markGivenUp(left.RequestID, true)
		return nil, &Problem{
			Code: string(contract.CodeNewInstance), Message: "an earlier call may have run this code on a VM that has been replaced since; it was not run on the new one",
			Hint: "Find out whether the code did its work. Run the setup code again, then call again to run this code on the new VM.",
		}
	}
	if err != nil {
		mayRun := (earlier.requestID != "" || client.MayRun(err)) && refusalCode(err) != contract.CodeNewInstance
		if !mayRun {
			c.left = nil
		}
		// A call that the host cancelled is remembered as given up.
		if mayRun && left.RequestID == "" && (earlier.requestID != "" || !errors.Is(err, context.Canceled)) {
			c.unsure.add(same, submitted{s.RequestID, sentTo})
		}
		return nil, unsubmitted(err, mayRun, s.RequestID)
	}
	switch {
	case left.RequestID != "":
		c.reminders = append(slices.DeleteFunc(c.reminders, func(r reminder) bool { return r.requestID == left.RequestID }), reminder{requestID: left.RequestID})
		c.warn("An earlier call with this code was given up after %.0f s. This is its run: nothing was submitted. To run the code once more on purpose, change it, for example by a comment.", left.After.Seconds())
	case earlier.requestID != "":
		c.warn("An earlier call with the same code got no answer. This is its run: the code was not run a second time. To run it once more, call again.")
	}
	r := c.read(e.ExecutionID, render.Options{})
	r.watch = watch
	defer r.col.Close()
	followed := r.follow(ctx, e, time.Until(until), client.FollowOptions{MaxBytes: contract.MaxReadBytes})
	c.checkKernel(r.exec.KernelID)
	return r.finish(ctx, followed)
}

// unansweredSubmit is what a call sent. Two calls of the same code are two runs.
type unansweredSubmit struct {
	runtime string
	code    [sha256.Size]byte
	timeout time.Duration
}

// submitted is how it is found again.
type submitted struct{ requestID, instance string }

// submitFor submits code, or asks the executor to which an earlier call sent it for that run.
func (c *call) submitFor(ctx context.Context, earlier submitted, s contract.Submit) (contract.Execution, error) {
	if earlier.instance != "" {
		return c.target.Client.SubmitTo(ctx, earlier.instance, s)
	}
	return c.target.Client.Submit(ctx, s)
}

// unsubmitted is the problem of a submit that ended with err. It says whether the code may run.
func unsubmitted(err error, mayRun bool, requestID string) *Problem {
	p := problemOf(err)
	failed, unanswered := errors.AsType[*client.Error](err)
	next := p.Hint
	if unanswered {
		next = failed.Hint
	}
	switch {
	case mayRun:
		return p.withHint(fmt.Sprintf("The code may have been submitted. If so, list_executions shows the run under request_id %s: check that before you run the code again. While this relay runs, the same call asks for that run, and does not run the code twice. For the connection: %s", requestID, next))
	case unanswered:
		return p.withHint("The code was not run. " + next)
	}
	return p
}

// quietFor is how long the submit of a call with progress waits before output alone
// answers it: long enough that a quick run costs a single request.
const quietFor = 2 * time.Second

// maxCodeBytes leaves room for JSON's escapes within contract.MaxBodyBytes.
const maxCodeBytes = 4 << 20

// waitSeconds is the wait_seconds of a call that this answer recommends.
func (c *call) waitSeconds() int {
	if c.clientLimit > 0 {
		return int((min(c.cfg.Hold, c.clientLimit) - beforeLimit).Seconds())
	}
	return int(max(c.cfg.Hold, c.most).Seconds())
}

// waitBudget is how long a call may wait for a run: its time less what the answer itself
// needs (fetching pictures, writing files).
func (c *call) waitBudget() time.Duration { return c.budget(c.hold) }

// budget is what a call that may last so long has left to wait.
func (c *call) budget(most time.Duration) time.Duration {
	rest := min(most/10, 2*time.Second)
	if most == c.clientLimit {
		rest = beforeLimit
	}
	return most - rest - time.Since(c.started)
}

func (c *call) saveKey(id string) string {
	return c.target.Name + "/" + c.target.Client.InstanceID() + "/" + id
}

// savedAnswer is the data of a checkpoint of run_code_long.
type savedAnswer struct {
	Outcome
	*Run
}

// saveLater saves the answer of a call that started without the checkpoint's lock.
func (c *call) saveLater(run *Run, problem *Problem, name string) {
	unlock, err := checkpoint.Lock(c.cfg.CheckpointDir, name)
	if err != nil {
		run.CheckpointSaved = new(bool)
		run.Notes = append(run.Notes, fmt.Sprintf("the answer was not saved: %v; call again later to save it", err))
		return
	}
	defer unlock()
	c.saveLocked(run, problem, name)
}

// saveLocked saves an answer under a checkpoint name and records that in the answer. The
// caller holds the checkpoint's lock.
func (c *call) saveLocked(run *Run, problem *Problem, name string) {
	if entry, err := checkpoint.Load(c.cfg.CheckpointDir, name, nil); err == nil && entry.Kind() == chunked.Kind {
		run.CheckpointSaved = new(bool)
		run.Notes = append(run.Notes, fmt.Sprintf("the answer was not saved: %q is the name of a chunked run; choose another checkpoint_name", name))
		return
	}
	data := savedAnswer{Outcome{Success: problem == nil, Runtime: c.target.Name, Error: problem}, run}
	path, err := checkpoint.Save(c.cfg.CheckpointDir, name, data)
	saved := err == nil
	run.CheckpointSaved, run.CheckpointPath = &saved, path
	if err != nil {
		run.Notes = append(run.Notes, "the checkpoint could not be saved: "+err.Error())
	}
}

// Run is the answer of run_code_quick, run_code_long and get_execution.
type Run struct {
	Status           string          `json:"status"`       // queued, running, waiting_for_input, succeeded, failed, timed_out, interrupted, cancelled, kernel_died, kernel_restarted or lost
	ExecutionID      string          `json:"execution_id"` // id of the run on the VM, for get_execution
	Stdout           string          `json:"stdout"`       // what was printed; head and tail when it is long. Progress bars are folded
	Stderr           string          `json:"stderr"`
	Result           *string         `json:"result,omitzero"`             // value of the last expression as text; absent when there is none
	Outputs          []render.Output `json:"outputs,omitzero"`            // display outputs; PNG and JPEG pictures come as image content too
	ExecutionTimeSec *float64        `json:"execution_time_sec,omitzero"` // since it started, to its end or until now; absent while queued
	MemoryBeforeGB   *float64        `json:"memory_before_gb,omitzero"`   // memory in use on the VM when it started
	MemoryAfterGB    *float64        `json:"memory_after_gb,omitzero"`    // when it ended
	MemoryDeltaMB    *float64        `json:"memory_delta_mb,omitzero"`
	Truncated        bool            `json:"truncated"`                  // output is missing here; it starts at next_offset
	NextOffset       int64           `json:"next_offset"`                // where to continue reading: pass it to get_execution as offset
	NextCommand      string          `json:"next_command,omitempty"`     // what to call next, if the run has not ended or output is omitted
	QueuePosition    int             `json:"queue_position,omitempty"`   // number of runs before this one
	KernelID         string          `json:"kernel_id,omitempty"`        // the kernel that it ran in; a different one has none of its variables
	Behind           string          `json:"behind,omitempty"`           // with status queued: execution_id of the run that has the kernel
	InputPrompt      *string         `json:"input_prompt,omitempty"`     // what input() asks, with status waiting_for_input; provide_input answers
	SavedFiles       []render.File   `json:"saved_files,omitempty"`      // originals of pictures and full texts, on the relay's machine
	Notes            []string        `json:"notes,omitempty"`            // what could not be shown or saved, and why
	CheckpointSaved  *bool           `json:"checkpoint_saved,omitempty"` // with checkpoint_name: whether this answer was saved
	CheckpointPath   string          `json:"checkpoint_path,omitempty"`

	displayed string // traceback of an error that did not end the run

	password bool   // the prompt asks for a password
	page     bool   // of complete events, not head and tail
	inTab    bool   // it has no id, because Colab's page runs it, and no executor
	runtime  string // name of the runtime
	limit    int    // characters of the text
}

// maxText returns how many characters the text may have. A page omits nothing, and its
// events bound it.
func (r *Run) maxText() int {
	if r.page {
		return maxPageRunes
	}
	return r.limit
}

func newRun(e contract.Execution, v render.View) *Run {
	r := &Run{
		Status: string(e.Status), ExecutionID: e.ExecutionID,
		Stdout: v.Stdout, Stderr: v.Stderr, Outputs: append([]render.Output{}, v.Outputs...),
		Truncated: v.Truncated, NextOffset: v.NextOffset, QueuePosition: e.QueuePosition,
		KernelID: e.KernelID, SavedFiles: v.Files, Notes: v.Notes,
		ExecutionTimeSec: seconds(e),
	}
	if e.Status.OK() && e.Reason != "" { // the Problem of any other run has it
		r.Notes = append(slices.Clip(r.Notes), plain.Quote(brief(e.Reason)))
	}
	if v.HasResult {
		r.Result = &v.Result
	}
	if e.Status == contract.StatusWaitingForInput && v.Prompt != nil {
		r.InputPrompt, r.password = &v.Prompt.Text, v.Prompt.Password
	}
	if b := client.Behind(e); b != nil {
		r.Behind = b.ExecutionID
	}
	r.memory(e)
	return r
}

func (r *Run) memory(e contract.Execution) {
	if e.MemoryBeforeBytes == 0 {
		return
	}
	r.MemoryBeforeGB = round(float64(e.MemoryBeforeBytes)/(1<<30), 1000)
	if e.MemoryAfterBytes == 0 {
		return
	}
	r.MemoryAfterGB = round(float64(e.MemoryAfterBytes)/(1<<30), 1000)
	r.MemoryDeltaMB = round((float64(e.MemoryAfterBytes)-float64(e.MemoryBeforeBytes))/(1<<20), 10)
}

// seconds returns how long a run has taken; nil before its start.
func seconds(e contract.Execution) *float64 {
	switch {
	case e.StartedAt == nil:
		return nil
	case e.FinishedAt != nil:
		return round(e.FinishedAt.Sub(*e.StartedAt).Seconds(), 1000)
	case e.Status.Finished():
		return nil
	}
	// The VM's clock may differ, and a negative time would be nonsense.
	return round(max(0, time.Since(*e.StartedAt).Seconds()), 1000)
}

func round(v float64, parts float64) *float64 {
	v = math.Round(v*parts) / parts
	return &v
}

func (r *Run) text(b *words) {
	fmt.Fprintf(b, "Status: %s", r.Status)
	if r.ExecutionTimeSec != nil {
		fmt.Fprintf(b, ", %.3g s", *r.ExecutionTimeSec)
	}
	switch {
	case r.inTab:
		r.nextInTab(b)
	case r.ExecutionID == "": // a cell that has not begun
		b.WriteString("\n")
		r.next(b)
	default:
		fmt.Fprintf(b, ", execution_id %s\n", r.ExecutionID)
		r.next(b)
	}
	for _, o := range r.Outputs {
		if o.Path != "" {
			fmt.Fprintf(b, "Output %s is saved in %s\n", inlineList(o.MIMETypes), render.File{Path: o.Path, Pixels: o.Pixels})
		}
	}
	for _, f := range r.SavedFiles {
		if f.Kind == "result" || f.Kind == "traceback" {
			fmt.Fprintf(b, "The complete %s is in %s\n", f.Kind, f.Path)
		}
	}
	b.notes(r.Notes)
	if r.CheckpointPath != "" {
		fmt.Fprintf(b, "Checkpoint: %s\n", r.CheckpointPath)
	}
	r.quoted(b)
}

// quoted adds what the code printed and showed.
func (r *Run) quoted(b *words) {
	b.say("stdout", r.Stdout)
	b.say("stderr", r.Stderr)
	if r.Result != nil {
		b.say("result", *r.Result)
	}
	for _, o := range r.Outputs {
		isResult := o.Text == "" && o.Path == "" && len(o.MIMETypes) == 1
		if !isResult {
			b.quote("output "+inlineList(o.MIMETypes), o.Text)
		}
	}
	b.quote("traceback of an error that was displayed, after which the run continued", r.displayed)
}

// next says what to do about a run that has not ended or whose output is not complete here.
func (r *Run) next(b *words) {
	switch contract.Status(r.Status) {
	case contract.StatusQueued:
		behind := ahead(r.QueuePosition)
		switch {
		case r.Behind != "" && r.QueuePosition > 1:
			behind += ", now run " + r.Behind
		case r.Behind != "":
			behind = "run " + r.Behind
		}
		fmt.Fprintf(b, "Waiting for %s on runtime %q; do not submit the code again. ", behind, r.runtime)
	case contract.StatusRunning:
		fmt.Fprintf(b, "Still running on runtime %q; do not run the code again. ", r.runtime)
	case contract.StatusWaitingForInput:
		prompt := ""
		if r.InputPrompt != nil {
			prompt = *r.InputPrompt
		}
		fmt.Fprintf(b, "Waiting for input on runtime %q: %s. ", r.runtime, plain.Quote(plain.Clip(prompt, maxInline)))
	default:
		switch {
		case r.Truncated && r.page:
			b.WriteString("More output follows. ")
		case r.Truncated:
			fmt.Fprintf(b, "The output is shortened here%s. To page through it: ", r.savedStreams())
			b.WriteString(r.NextCommand + "\n")
			return
		}
	}
	if r.NextCommand != "" {
		fmt.Fprintf(b, "Next step: %s\n", r.NextCommand)
	}
	if r.Truncated && !r.page {
		fmt.Fprintf(b, "The output so far is shortened here%s; get_execution with offset=%d pages through it.\n", r.savedStreams(), r.NextOffset)
	}
}

// nextInTab is next for a run in Colab's tab.
func (r *Run) nextInTab(b *words) {
	b.WriteString("\n")
	switch {
	case contract.Status(r.Status) == contract.StatusRunning:
		fmt.Fprintf(b, "Still running in Colab's tab. The same call waits on and does not start the cell again; get_cells shows the outputs so far. Next step: %s\n", r.NextCommand)
	case r.Truncated:
		fmt.Fprintf(b, "The output is shortened here%s. More of it: %s\n", r.savedStreams(), r.NextCommand)
	}
}

// savedStreams names the files that have the complete output.
func (r *Run) savedStreams() string {
	var paths []string
	for _, f := range r.SavedFiles {
		if f.Kind == contract.Stdout || f.Kind == contract.Stderr {
			paths = append(paths, f.Path)
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return " and saved in " + strings.Join(paths, " and ")
}
