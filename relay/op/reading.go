package op

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// reading is one execution being read within one call.
type reading struct {
	c    *call
	col  *render.Collector
	exec contract.Execution // as last read, without events
	page bool               // of complete events
	cut  bool               // events remain for the next page

	watch func(contract.Event) // gets every event that is read; may be nil
}

// read starts reading the execution id with the options o, whose Dir and Instance it sets.
func (c *call) read(id string, o render.Options) *reading {
	o.Instance, o.Limit, o.Holding = c.target.Client.InstanceID(), viewLimit(c.cfg.TextLimit), &c.held
	o.Dir = c.outputDir(o.Instance, id)
	return &reading{c: c, col: render.New(o), page: o.Page}
}

// viewLimit returns how many characters of an answer's text are for the run's own texts. The
// rest is for status, advice and file names.
func viewLimit(textLimit int) int { return textLimit - min(max(textLimit/6, 400), 4000) }

// outputDir returns the folder for the output of an execution of an instance; empty to save
// nothing. Another instance's execution has another folder, even if it has the same id.
func (c *call) outputDir(instance, id string) string {
	if c.cfg.SaveDir == "" {
		return ""
	}
	return render.Folder(c.cfg.SaveDir, instance, id)
}

// take adds an answer's events and reports whether there is room for more.
func (r *reading) take(e contract.Execution) (more bool) {
	r.exec = e
	r.exec.Events = nil
	for _, ev := range e.Events {
		if !r.col.Room(ev) {
			r.cut = true
			return false
		}
		r.col.Add(ev)
		if r.watch != nil {
			r.watch(ev)
		}
	}
	if r.c.progress != nil {
		r.c.progress.waitFor(waitingFor(r.exec, r.c.target.Name))
		r.c.progress.show(r.col.Newest())
	}
	return !r.col.Full() && client.BehindInput(e) == nil
}

// waitingFor says for what and where a call waits that has no output to show yet.
func waitingFor(e contract.Execution, runtime string) string {
	behind := client.Behind(e)
	switch {
	case behind != nil:
		return fmt.Sprintf("waiting for run %s on runtime %q", behind.ExecutionID, runtime)
	case e.Status == contract.StatusQueued:
		return fmt.Sprintf("waiting for %s on runtime %q", ahead(e.QueuePosition), runtime)
	}
	return fmt.Sprintf("running on runtime %q, no output yet", runtime)
}

// ahead says what a queued run waits for. The first in the queue waits for a kernel that is starting.
func ahead(position int) string {
	if position == 0 {
		return "the kernel to be ready"
	}
	return plain.Count(position, "other run")
}

// follow reads on, beginning with the answer e, until the run's end is read, the page
// is full, the run or the one that it is queued behind asks for input, or wait is over. An
// error means that reading failed; it does not affect the run.
func (r *reading) follow(ctx context.Context, e contract.Execution, wait time.Duration, o client.FollowOptions) error {
	o.From, o.Until, o.Instance = r.col.Next(), time.Now().Add(wait), r.c.target.Client.InstanceID()
	o.Visit = func(e contract.Execution) bool {
		return r.take(e) && (o.Available || !e.Status.Finished() || time.Now().Before(o.Until))
	}
	o.Next = func() int64 {
		r.col.Skip()
		return r.col.Next()
	}
	_, err := client.Follow(client.WithBehindInput(ctx), r.c.target.Client, e, o)
	return err
}

// finish makes the answer from what was read. followed is the error of follow.
func (r *reading) finish(ctx context.Context, followed error) (*Run, *Problem) {
	problem := r.explain(followed)
	r.c.warnOfEnd(r.exec.SessionMinutesLeft)
	if r.exec.End && r.exec.Status.Finished() {
		r.col.End()
	}
	view := r.col.View(ctx, r.c.target.Client.Blobs(r.exec.ExecutionID))
	r.c.pictures = view.Pictures
	run := newRun(r.exec, view)
	if run.InputPrompt != nil {
		r.c.prompts.put(run.ExecutionID, view.Prompt.Offset)
	}
	r.warnOfPrompt(run)
	run.page, run.runtime, run.limit = r.page, r.c.target.Name, r.c.cfg.TextLimit
	more := !r.exec.End && (r.exec.Status.Finished() || r.col.Full())
	run.Truncated = view.Truncated || r.cut || more
	run.NextCommand = r.nextCommand(run)
	if problem == nil {
		problem = runProblem(r.exec)
	}
	switch {
	case view.Error == nil:
	case problem == nil, r.exec.Status == contract.StatusKernelRestarted: // displayed, not raised, as by a failing __repr__
		run.displayed = view.Error.Traceback
	default:
		problem.Traceback = view.Error.Traceback
		if r.exec.Error == nil || r.exec.Error.EName == view.Error.EName { // else a hook raised after the code
			problem.EName, problem.EValue = view.Error.EName, view.Error.EValue
		}
	}
	return run, problem
}

// nextCommand returns the call that continues with a run that has not ended, or reads the
// output that is missing in its answer; empty if nothing remains.
func (r *reading) nextCommand(run *Run) string {
	asking := client.BehindInput(r.exec)
	switch {
	case asking != nil && !asking.Password:
		return command("provide_input", "execution_id", asking.ExecutionID, "text", "…", "runtime_name", r.c.asked)
	case r.exec.Status == contract.StatusWaitingForInput && !run.password:
		return command("provide_input", "execution_id", run.ExecutionID, "text", "…", "runtime_name", r.c.asked)
	case !r.exec.Status.Finished():
		offset := r.col.Next() // what comes now; the run's text says how to read what was omitted
		if r.page {
			offset = run.NextOffset
		}
		return command("get_execution", "execution_id", run.ExecutionID, "offset", offset, "wait_seconds", r.c.waitSeconds(), "runtime_name", r.c.asked)
	case run.Truncated:
		return command("get_execution", "execution_id", run.ExecutionID, "offset", run.NextOffset, "runtime_name", r.c.asked)
	}
	return ""
}

// warnOfPrompt says what only a person or another call can end: the run is queued behind one
// that waits for input, or asks for a password.
func (r *reading) warnOfPrompt(run *Run) {
	if b := client.BehindInput(r.exec); b != nil {
		r.c.warn("This run waits for %s. %s", hint.Asking(b), hint.ForPrompt(b).Model)
	}
	if run.password {
		r.c.warn("The code asks for a password, which provide_input does not accept. %s", hint.ForPassword(run.ExecutionID))
	}
}

// explain translates the error of follow. The executor's refusal is an error; a broken
// connection is only a warning, because the run continues without us.
func (r *reading) explain(followed error) *Problem {
	switch {
	case followed == nil:
		return nil
	case errors.Is(followed, context.Canceled):
		return cancelledProblem
	case errors.Is(followed, context.DeadlineExceeded) && !unreachable(followed):
		return nil // only the call's time is over
	}
	p := problemOn(hint.Execution, r.exec.ExecutionID, followed)
	if !unreachable(followed) {
		return p
	}
	r.c.warn("The VM could not be reached while waiting (%s), so status and output are as of the last answer; if only the connection is lost, the run goes on. %s", p.Message, p.Hint)
	return nil
}

// disconnected are the kinds of error of a broken connection.
var disconnected = []client.Kind{client.KindUnreachable, client.KindNoSuchHost, client.KindTunnelOffline, client.KindTunnelError, client.KindTunnelQuota, client.KindIntercepted, client.KindProxy}

// unread returns the error of a call whose run was not read to its end. rest says what a later
// call does.
func unread(err error, rest string) *Problem {
	p := problemOf(err).copy()
	switch {
	case refusalCode(err) == contract.CodeKernelStarting:
		p.Message = "the kernel is still starting, so nothing further was sent"
	default:
		p.Message = fmt.Sprintf("the VM could not be reached (%s). What was read is saved. If only the connection is lost, the run goes on on the VM; %s", p.Message, rest)
	}
	return p
}

// unreachable reports whether err is an error of the connection or a temporary refusal, after
// which the run probably still exists.
func unreachable(err error) bool {
	switch refusalCode(err) {
	case contract.CodeReplayed, contract.CodeRateLimited, contract.CodeClockSkew, contract.CodeShuttingDown, contract.CodeKernelStarting:
		return true
	case "":
		lost, ok := errors.AsType[*client.Error](err)
		return ok && slices.Contains(disconnected, lost.Kind)
	}
	return false
}
