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

// How runs are read.
const (
	// leastWait is the shortest long poll worth its request.
	leastWait = 250 * time.Millisecond
	// quickAnswer marks a chatty run: answers that come faster than this are
	// spaced out, or a run that prints all the time would cost 20 requests a second.
	quickAnswer = 500 * time.Millisecond
	maxPause    = 2 * time.Second
)

// reading is one execution being read within one call.
type reading struct {
	c     *call
	col   *render.Collector
	exec  contract.Execution // as last heard of
	begun time.Time
	cut   bool // events were left for the next page
}

// read starts reading the execution id from offset from on.
func (c *call) read(id string, from int64, page bool) *reading {
	dir := ""
	if c.cfg.SaveDir != "" {
		dir = filepath.Join(c.cfg.SaveDir, "executions", filename.ID(id))
	}
	return &reading{c: c, col: render.New(render.Options{Dir: dir, From: from, Page: page, Instance: c.target.Client.InstanceID()}), begun: time.Now()}
}

// take adds an answer's events.
func (r *reading) take(e contract.Execution) {
	r.exec = e
	for _, ev := range e.Events {
		if r.col.Full() {
			r.cut = true
			return
		}
		if ev.Offset >= r.col.Next() {
			r.col.Add(ev)
		}
	}
	r.exec.Events = nil
	r.c.progress.show(r.col.Newest())
}

// done reports that there is nothing to wait for: the end is read, the page is
// full, or the run asks for input.
func (r *reading) done() bool {
	if r.exec.End || r.cut || r.col.Full() {
		return true
	}
	return r.exec.Status == contract.StatusWaitingForInput && r.col.Asking()
}

// follow reads on until done or until wait is used up. An error means that the
// executor could not be asked; the run itself is not touched by it.
func (r *reading) follow(ctx context.Context, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	size := int64(contract.MaxReadBytes)
	if r.col.HasSaved() {
		size = firstBytes // no more than the head: what follows it is here already
	}
	for !r.done() {
		r.col.Skip()
		left := time.Until(deadline)
		behind := r.exec.Status.Finished()
		if left < leastWait && !behind || left <= 0 {
			return nil
		}
		asked := time.Now()
		known := r.col.Next()
		e, err := r.c.target.Client.Execution(ctx, r.exec.ExecutionID, known, min(left, contract.MaxWait), size)
		if err != nil {
			return err
		}
		r.take(e)
		if r.exec.Status == contract.StatusWaitingForInput && r.col.Next() == known {
			return nil // it asked before the offset this reading began at
		}
		if !behind && time.Since(asked) < quickAnswer && !r.done() && !full(e, size) {
			r.pause(ctx, deadline)
		}
		size = min(2*size, contract.MaxReadBytes)
	}
	return nil
}

// full reports that an answer came near the size asked for, so more may be ready.
func full(e contract.Execution, asked int64) bool {
	size := 0
	for i := range e.Events {
		size += len(e.Events[i].Text) + 100
		for _, payload := range e.Events[i].Data {
			size += len(payload)
		}
	}
	return int64(size) > asked/2
}

// pause waits a tenth of what this reading has taken so far, at most maxPause.
func (r *reading) pause(ctx context.Context, deadline time.Time) {
	d := min(time.Since(r.begun)/10, maxPause, time.Until(deadline))
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// finish makes the answer out of what was read. followed is what follow gave.
func (r *reading) finish(ctx context.Context, followed error) (*Run, *Problem) {
	problem := r.explain(followed)
	r.c.sawSession(r.exec.SessionMinutesLeft)
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
	p := problemOf(followed)
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
