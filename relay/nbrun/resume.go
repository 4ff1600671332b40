package nbrun

import (
	"context"
	"errors"

	"colabrelay/shared/contract"
)

func refusedAs(err error, code contract.Code) bool {
	var refused *contract.Error
	return errors.As(err, &refused) && refused.Code == code
}

// find compares the record with the VM: with its kernel, and with what it has of the flights.
func (a *advance) find(ctx context.Context, kernelID string) error {
	flying := a.flying()
	switch {
	case a.movedVM(flying):
		return a.newKernel(ctx, kernelID)
	case len(flying) == 0:
		return a.meet(ctx, kernelID)
	}
	if err := a.findIDs(ctx, flying); err != nil {
		return err
	}
	return a.submitAgain(ctx, flying)
}

// movedVM reports whether flights are on another VM than the one that answers.
func (a *advance) movedVM(flying []*Flight) bool {
	for _, f := range flying {
		if f.InstanceID != a.vm.InstanceID() {
			return true
		}
	}
	return false
}

// findIDs finds the execution of each flight whose submit was not answered, with one request.
func (a *advance) findIDs(ctx context.Context, flights []*Flight) error {
	lost := map[string]*Flight{}
	for _, f := range flights {
		if f.ExecutionID == "" {
			lost[f.RequestID] = f
		}
	}
	if len(lost) == 0 {
		return nil
	}
	list, err := a.vm.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return err
	}
	for _, e := range list.Executions {
		f := lost[e.RequestID]
		if f == nil || e.ExecutionID == "" {
			continue
		}
		f.ExecutionID = e.ExecutionID
		if c := a.run().cell(f.Handle); c != nil && c.attempt(f.RequestID) != nil {
			c.attempt(f.RequestID).ExecutionID = e.ExecutionID
		}
	}
	return nil
}

// submitAgain submits the flights that the VM does not list, with their old request_ids. If an
// earlier request arrives later, the cell still runs only once. Flights of cells that were edited
// meanwhile are dropped instead.
func (a *advance) submitAgain(ctx context.Context, flying []*Flight) error {
	for i, f := range flying {
		if f.ExecutionID != "" {
			continue
		}
		now := a.view.byHandle[f.Handle]
		if now == nil || now.sent != f.Sent || f.Withdrawn || a.run().Stopping != "" {
			a.unboard(len(flying) - i)
			return nil
		}
		if err := a.submit(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// unreadable acts on an error of a read: the VM was replaced, or has forgotten the execution.
func (a *advance) unreadable(ctx context.Context, f *Flight, err error) (more bool, _ error) {
	switch {
	case refusedAs(err, contract.CodeNewInstance):
		return true, a.meetVM(ctx)
	case refusedAs(err, contract.CodeNotFound) && f.Ended:
		a.reading(f).end = true
		a.addNote("the VM no longer has the outputs of the cell %s, which had ended", f.Handle)
		return true, nil
	case refusedAs(err, contract.CodeNotFound):
		f.Ended, a.reading(f).end = true, true
		c := a.run().cell(f.Handle)
		a.addNote("the VM no longer has the execution of cell %d (%s): how it ended is unknown", c.Index, c.Handle)
		return true, a.settle(ctx, f, c, CellLost)
	}
	return false, err
}

// withdraw cancels the flights from position from on, the last one first, so that none starts
// when the one before it ends. cancel says what happens to one that runs.
func (a *advance) withdraw(ctx context.Context, from int, cancel func(context.Context, *Flight) error) error {
	flying := a.flying()
	if len(flying) <= from {
		return nil
	}
	for _, f := range flying[from:] {
		f.Withdrawn = true
	}
	if err := a.save(); err != nil {
		return err
	}
	for i := len(flying) - 1; i >= from; i-- {
		if err := cancel(ctx, flying[i]); err != nil {
			return err
		}
	}
	return nil
}

// cancelQueued cancels a flight unless it has started: then its code must not run again.
func (a *advance) cancelQueued(ctx context.Context, f *Flight) error {
	e, err := a.end(ctx, f, a.vm.CancelQueued)
	if e.Status != "" && e.Status != contract.StatusCancelled && e.Status != contract.StatusInterrupted {
		f.Withdrawn = false
		return a.save()
	}
	return err
}

// interrupt cancels or interrupts a flight, unless it has ended.
func (a *advance) interrupt(ctx context.Context, f *Flight) error {
	_, err := a.end(ctx, f, a.vm.Interrupt)
	return err
}

// end ends a flight with a request. The execution is empty if this VM does not have it, or
// refused the request.
func (a *advance) end(ctx context.Context, f *Flight, request func(context.Context, string) (contract.Execution, error)) (contract.Execution, error) {
	if f.ExecutionID == "" || f.InstanceID != a.vm.InstanceID() {
		return contract.Execution{}, nil
	}
	e, err := request(ctx, f.ExecutionID)
	var refused *contract.Error
	if errors.As(err, &refused) {
		return contract.Execution{}, nil
	}
	return e, err
}
