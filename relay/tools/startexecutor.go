package tools

import (
	"context"
	"errors"

	"colabrelay/relay/bridge"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
)

// StartExecutor starts an executor on the VM of the notebook in a tab and pairs it. It goes on
// past ctx, with *bridge.StartingError; the same call joins it. step gets what it does, in a
// line.
type StartExecutor func(ctx context.Context, tab *page.Tab, r bridge.Request, step func(string)) (bridge.Paired, error)

// startExecutor completes the answer about a connected tab with the executor on its VM. waiting
// ends when this call may wait no longer.
func (c *call) startExecutor(ctx, waiting context.Context, tab *page.Tab, args openArgs, got *PageConnection) *Problem {
	paired, err := c.cfg.StartExecutor(waiting, tab, bridge.Request{Name: args.Runtime, StatusCell: args.StatusCell}, c.progress.show)
	starting, goesOn := errors.AsType[*bridge.StartingError](err)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return cancelledProblem
	case goesOn:
		got.Waiting, got.NextCommand, got.Notes = true, args.again(), []string{starting.Error()}
		return nil
	case err != nil:
		return c.startProblem(err)
	}
	c.target = runtimes.Runtime{Name: paired.Runtime.Name, URL: paired.Runtime.URL}
	got.Executor, got.Notes = paired.Runtime.Name, paired.Notes
	if paired.Already {
		got.Notes = append([]string{"The executor of an earlier start runs on this VM, so no other one was started."}, got.Notes...)
	}
	return nil
}

// startProblem translates an error of StartExecutor.
func (c *call) startProblem(err error) *Problem {
	switch {
	case errors.Is(err, pairing.ErrBadName):
		return &Problem{Code: codeBadRequest, Message: "bad arguments: " + err.Error(), Hint: "Omit runtime_name, or give another one."}
	case errors.Is(err, page.ErrTabLost), errors.Is(err, page.ErrClosed):
		return c.tabProblem(err)
	}
	return problemOf(err)
}
