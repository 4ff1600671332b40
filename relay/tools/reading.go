package tools

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// reading is one execution being read within one call.
type reading struct {
	c    *call
	col  *render.Collector
	exec contract.Execution // as last heard of, without events
	cut  bool               // events were left for the next page
}

// read starts reading the execution id from offset from on.
func (c *call) read(id string, from int64, page bool) *reading {
	dir := ""
	if c.cfg.SaveDir != "" {
		dir = filepath.Join(c.cfg.SaveDir, "executions", filename.ID(id))
	}
	return &reading{c: c, col: render.New(render.Options{Dir: dir, From: from, Page: page, Instance: c.target.Client.InstanceID()})}
}

// take adds an answer's events and reports whether there is room for more.
func (r *reading) take(e contract.Execution) (more bool) {
	r.exec = e
	r.exec.Events = nil
	for _, ev := range e.Events {
		if r.col.Full() {
			r.cut = true
			return false
		}
		r.col.Add(ev)
	}
	r.c.progress.show(r.col.Newest())
	return !r.col.Full()
}

// follow reads on, beginning with the answer e, until the run's end is read, the page
// is full, the run asks for input, or wait is used up. An error means that the executor
// could not be asked; the run itself is not touched by it.
func (r *reading) follow(ctx context.Context, e contract.Execution, wait time.Duration, o client.FollowOptions) error {
	o.From, o.Until, o.Instance = r.col.Next(), time.Now().Add(wait), r.c.target.Client.InstanceID()
	o.Visit = func(e contract.Execution) bool {
		return r.take(e) && (o.Available || !e.Status.Finished() || time.Now().Before(o.Until))
	}
	o.Next = func() int64 {
		r.col.Skip()
		return r.col.Next()
	}
	_, err := client.Follow(ctx, r.c.target.Client, e, o)
	return err
}

// finish makes the answer out of what was read. followed is what follow gave.
func (r *reading) finish(ctx context.Context, followed error) (*Run, *Problem) {
	problem := r.explain(followed)
	r.c.warnOfEnd(r.exec.SessionMinutesLeft)
	view := r.col.View(ctx, func(ctx context.Context, blob contract.Blob, w writer) error {
		return r.c.target.Client.Blob(ctx, r.exec.ExecutionID, blob, w)
	})
	r.c.pictures = view.Pictures
	run := newRun(r.exec, view)
	more := !r.exec.End && (r.exec.Status.Finished() || r.col.Full())
	run.Truncated = view.Truncated || r.cut || more
	if problem == nil {
		problem = runProblem(r.exec)
	}
	switch {
	case view.Error == nil:
	case problem == nil, r.exec.Status == contract.StatusKernelRestarted: // shown, not raised: a failing __repr__ say
		run.Notes = append(run.Notes, "an error was shown, and the run went on:\n"+view.Error.Traceback)
	default:
		problem.EName, problem.EValue, problem.Traceback = view.Error.EName, view.Error.EValue, view.Error.Traceback
	}
	return run, problem
}

// explain tells a broken wait: the executor's own refusal is an error; a line
// that is down is only a warning, as the run goes on without us.
func (r *reading) explain(followed error) *Problem {
	switch {
	case followed == nil:
		return nil
	case errors.Is(followed, context.Canceled):
		return cancelledProblem
	case errors.Is(followed, context.DeadlineExceeded) && !unreachable(followed):
		return nil // the call's time is over, no more
	}
	p := executionProblem(followed)
	if !unreachable(followed) {
		return p
	}
	r.c.warn("The VM could not be reached while waiting (%s), so status and output are as last known; the run goes on there. %s", p.Message, p.Hint)
	return nil
}

// unreachable reports an error of the line, or a refusal for the moment: the run
// itself is not known to be gone.
func unreachable(err error) bool {
	var (
		lost    *client.Error
		refused *contract.Error
	)
	if errors.As(err, &refused) {
		switch refused.Code {
		case contract.CodeReplayed, contract.CodeRateLimited, contract.CodeClockSkew, contract.CodeShuttingDown, contract.CodeKernelStarting:
			return true
		}
		return false
	}
	if !errors.As(err, &lost) {
		return false
	}
	switch lost.Kind {
	case client.KindUnreachable, client.KindNoSuchHost, client.KindTunnelOffline, client.KindTunnelError, client.KindTunnelQuota:
		return true
	}
	return false
}
