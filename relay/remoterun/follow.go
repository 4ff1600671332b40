package remoterun

import (
	"context"
	"fmt"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// follow prints the run until it has ended. If ctx ends or stdout breaks, it ends the run.
func (r *run) follow(ctx context.Context) error {
	for !r.exec.End && r.out.broken == nil {
		err := r.print(ctx)
		switch {
		case r.exec.End: // also when ctx has ended meanwhile
		case ctx.Err() != nil:
			return r.end(ctx)
		case err != nil:
			return err
		}
	}
	switch {
	case r.out.broken == nil:
		return nil
	case r.exec.End:
		return fmt.Errorf("cannot write to stdout: %v", r.out.broken)
	}
	if err := r.end(ctx); err != nil {
		return fmt.Errorf("cannot write to stdout (%v): %w", r.out.broken, err)
	}
	return fmt.Errorf("cannot write to stdout (%v): the run ended as %s on the VM", r.out.broken, r.exec.Status)
}

// print answers the input request that the code waits for, if any, and prints events
// until the next input request, the end of the run, or an error of stdout.
func (r *run) print(ctx context.Context) error {
	err := r.input(ctx)
	if err == nil {
		err = r.read(ctx)
	}
	return r.lost(ctx, err)
}

// read prints events until the next input request, the end of the run, or an error of
// stdout.
func (r *run) read(ctx context.Context) error {
	alreadyBroken, answer := r.out.broken != nil, r.answer
	r.answer = contract.Execution{ExecutionID: answer.ExecutionID}
	following := ctx
	if !r.blockNoted {
		following = client.WithBehindInput(ctx)
	}
	_, err := client.Follow(following, r.Client, answer, client.FollowOptions{
		From: r.exec.NextOffset,
		Visit: func(e contract.Execution) bool {
			r.visit(ctx, e)
			return !r.noteBlocked(e) && (alreadyBroken || r.out.broken == nil)
		},
	})
	return r.explain(err)
}

// noteBlocked says that the run is queued behind one that waits for input. It says so once:
// a hostile executor could report another such run in each answer.
func (r *run) noteBlocked(e contract.Execution) (noted bool) {
	b := client.BehindInput(e)
	if b == nil || r.blockNoted {
		return false
	}
	r.blockNoted = true
	r.out.note("waiting for %s. %s", hint.Asking(b), hint.ForPrompt(b).Person)
	return true
}

// visit prints the events of an answer.
func (r *run) visit(ctx context.Context, e contract.Execution) {
	events := e.Events
	e.Events = nil
	if e.KernelID != r.exec.KernelID {
		r.checkKernel(e.KernelID)
	}
	r.exec = e
	for _, ev := range events {
		if r.Program != "" && kernelpy.IsMissing(ev.Data) {
			r.packageMissing = true
		}
		r.out.event(ctx, e.ExecutionID, ev)
	}
}
