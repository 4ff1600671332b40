package chunked

import (
	"context"
	"errors"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const (
	// liveWait is how long a submit waits when someone watches; reads follow.
	liveWait = 5 * time.Second
	// A watched batch is read about every mostPause, sooner when its end is near:
	// each request counts against the tunnel's month.
	mostPause  = 4 * time.Second
	leastPause = 500 * time.Millisecond
)

// errGone: the batch in flight is no more, or never was.
var errGone = errors.New("the batch in flight is gone")

// find asks what became of the batch in flight. It gives errGone when it is known
// that it will not run any more: what it had confirmed counts, the rest runs again.
func (a *advance) find(ctx context.Context) (contract.Execution, error) {
	f := a.state.InFlight
	if f.ExecutionID == "" { // the submit's answer was lost, or the relay died before it came
		id, err := a.lookUp(ctx, f)
		switch {
		case err != nil:
			return contract.Execution{}, err
		case a.replaced():
			return contract.Execution{}, errGone
		case id == "":
			return a.again(ctx)
		}
		f.ExecutionID = id
	}
	e, err := a.vm.Execution(ctx, f.ExecutionID, f.Offset, 0, contract.MaxReadBytes)
	if refusedAs(err, contract.CodeNotFound) {
		if !a.replaced() {
			a.note("the VM no longer knows the batch of iterations %d to %d; the kernel itself tells how far it came", f.Lo, f.Hi-1)
		}
		return e, errGone
	}
	return e, err
}

// lookUp finds a batch by its request_id; empty when it is not there.
func (a *advance) lookUp(ctx context.Context, f *Batch) (id string, err error) {
	list, err := a.vm.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return "", err
	}
	for _, e := range list.Executions {
		if e.RequestID == f.RequestID {
			return e.ExecutionID, nil
		}
	}
	return "", nil
}

// replaced reports, and notes, that the VM that answered is not the batch's.
func (a *advance) replaced() bool {
	f := a.state.InFlight
	if a.vm.InstanceID() == f.InstanceID {
		return false
	}
	a.note("the VM is another one than before: of the batch of iterations %d to %d what was not confirmed by then runs again here", f.Lo, f.Hi-1)
	return true
}

// again submits a batch that was never accepted, under its old request_id: should
// the first try still be on its way, it runs once all the same.
func (a *advance) again(ctx context.Context) (contract.Execution, error) {
	f := a.state.InFlight
	if f.CodeSHA256 != hash(a.cell(f)) { // other code by now, or another release
		return contract.Execution{}, errGone
	}
	e, err := a.send(ctx)
	if refusedAs(err, contract.CodeNewInstance) && a.replaced() {
		return e, errGone
	}
	return e, err
}

// abandon ends the batch of a run that a restart replaced: nobody wants its
// iterations any more. It may have ended, or its VM; then that is that.
func (a *advance) abandon(ctx context.Context) {
	f := a.abandoned
	if f == nil {
		return
	}
	a.abandoned = nil
	id, err := f.ExecutionID, error(nil)
	if id == "" {
		id, err = a.lookUp(ctx, f)
	}
	if err != nil || id == "" {
		return
	}
	if _, err := a.vm.Interrupt(ctx, id); err == nil {
		a.note("the batch of the run before was interrupted")
	}
}

// follow reads the batch to its end, or until the time is over or it waits for input.
// It begins with the answer e.
func (a *advance) follow(ctx context.Context, e contract.Execution) (contract.Execution, error) {
	f := a.state.InFlight
	f.ExecutionID = e.ExecutionID
	return client.Follow(ctx, a.vm, e, client.FollowOptions{
		From: f.Offset, Until: a.opt.Until, MaxBytes: contract.MaxReadBytes, Instance: f.InstanceID,
		Visit:   func(e contract.Execution) bool { a.take(e); return true },
		Spacing: a.spacing,
	})
}

// spacing is how long to let some iterations pass between two reads: less when the end
// is near.
func (a *advance) spacing() time.Duration {
	f, s := a.state.InFlight, a.state
	rest := time.Duration(float64(f.Hi-s.Done) * s.MeanSeconds * float64(time.Second))
	rest = min(rest, batchTime-time.Since(f.SubmittedAt))
	return min(max(rest, leastPause), mostPause)
}

// take takes in an answer's events: markers into the record, the rest for the reader.
func (a *advance) take(e contract.Execution) {
	f := a.state.InFlight
	if e.KernelID != "" { // a queued one has none
		a.state.KernelID, a.state.InstanceID = e.KernelID, f.InstanceID
	}
	output := e.Events[:0:0]
	for _, ev := range e.Events {
		switch {
		case IsMarker(ev):
			a.mark(ev, e.KernelID)
			continue
		case kernelpy.IsMissing(ev.Data):
			a.missing = true
			continue
		case ev.Type == contract.EventGap:
			a.gap()
		case ev.Type == contract.EventStream:
			a.state.printed(ev.Text)
		}
		output = append(output, ev)
	}
	f.Offset = e.NextOffset
	a.out.Batch = e
	a.out.Batch.Events = nil
	if a.opt.Output != nil && len(output) > 0 {
		a.opt.Output(e.ExecutionID, output)
	}
}

func (a *advance) gap() {
	if !a.gapTold {
		a.gapTold = true
		a.note("part of the output of iterations %d to %d is missing: the VM does not keep that much of one run", a.state.InFlight.Lo, a.state.InFlight.Hi-1)
	}
}

// mark takes a marker into the record. Each one tells all before it: markers in
// between may have been lost.
func (a *advance) mark(ev contract.Event, kernelID string) {
	s := a.state
	m, ok := readMarker(ev, s)
	if !ok {
		return
	}
	a.marked = true
	from := m.from()
	switch {
	case from < s.Done && s.Recover == recoverNone:
		a.note("the kernel stands at iteration %d, as a state saved then was restored: iterations %d to %d, confirmed before, run again", from, from, s.Done-1)
	case from > s.Done:
		a.note("iterations %d to %d were done before this was known; their values, if any, are lost", s.Done, from-1)
	}
	s.confirm(from, kernelID, s.InstanceID)
	s.confirm(m.Done, kernelID, s.InstanceID)
	switch m.Event {
	case eventDone:
		s.took(m)
		for _, v := range m.kept() {
			s.keep(v)
		}
		if a.opt.Progress != nil {
			a.opt.Progress(s)
		}
	case eventSetup:
		s.SetupSeconds = max(s.SetupSeconds, m.Seconds)
		if s.Done > 0 && s.InFlight.OnNew != onNewPrepare {
			a.note("the set-up code ran before iteration %d, as this kernel had not run it: what iterations in another kernel left in variables is not there (restore_kernel_state brings back what save_kernel_state kept)", s.Done)
		}
	case eventFailed, eventSetupFailed:
		a.failed = &m
	case eventCarries:
		s.Carried = &m.CarriedVariables
	case eventLost, eventPrepared:
		a.variables = m.Event
	}
}
