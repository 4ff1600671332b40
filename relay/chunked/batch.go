package chunked

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const (
	// liveWait is how long a submit waits for the batch to end if the run is watched. The
	// relay then reads the batch while it runs.
	liveWait = 5 * time.Second
	// While a batch runs, reads are between minPause and maxPause apart, and closer
	// when the batch's end is near. Each request counts against the tunnel's monthly limit.
	maxPause = 4 * time.Second
	minPause = 500 * time.Millisecond
)

var (
	// errBatchMissing: the running batch no longer exists, or was never accepted.
	errBatchMissing = errors.New("the running batch no longer exists")
	// errVMReplaced: another VM than the recorded one answers. Nothing ran there.
	errVMReplaced = errors.New("another VM answers at this address")
	// errPackageMissing: the kernel does not have the Python package, so the batch ran nothing.
	errPackageMissing = errors.New("the kernel does not have the package")
	// errNoMarkers: batches succeed without reporting any progress.
	errNoMarkers = errors.New("two batches ended without a progress marker: the display publisher of the kernel was replaced, or its messages are lost")
)

// submit submits the next batch, after recording it on disk.
func (run *runner) submit(ctx context.Context, withPackage bool) (contract.Execution, error) {
	if run.vm.InstanceID() == "" { // any signed answer names it
		if _, err := run.vm.List(ctx, 1); err != nil {
			return contract.Execution{}, err
		}
	}
	r := run.record
	r.InFlight = run.nextBatch(withPackage)
	if err := run.save(); err != nil {
		r.InFlight = nil
		return contract.Execution{}, err
	}
	run.onDisk = true
	e, err := run.send(ctx)
	if refusedAs(err, contract.CodeNewInstance) {
		recorded := r.InFlight.InstanceID
		r.InFlight = nil
		if run.batches > 0 || run.vm.InstanceID() == recorded { // replaced during this call
			return e, err
		}
		return e, errVMReplaced // the answer named the new VM, so the next attempt reaches it
	}
	if err == nil {
		run.batches++
	}
	return e, err
}

func (run *runner) nextBatch(withPackage bool) *Batch {
	r := run.record
	b := &Batch{
		RequestID: rand.Text(), InstanceID: run.vm.InstanceID(),
		Lo: r.Done, Hi: min(r.N, r.Done+max(1, run.spec.BatchSize)),
		Timeout: r.deadline(), SubmittedAt: time.Now().UTC(),
		Policy: run.choosePolicy(), Analyse: r.Carried == nil, WithPackage: withPackage,
	}
	b.CodeSHA256 = hash(run.batchCode(b))
	return b
}

// send submits the recorded batch, for the first time or again.
func (run *runner) send(ctx context.Context) (contract.Execution, error) {
	b := run.record.InFlight
	wait := time.Until(run.opt.Until) * 9 / 10 // the rest is for reading: the answer has the first events only
	if run.opt.Live {
		wait = min(wait, liveWait)
	}
	return run.vm.SubmitTo(ctx, b.InstanceID, contract.Submit{
		RequestID: b.RequestID, Code: run.batchCode(b),
		TimeoutSeconds: b.Timeout, WaitSeconds: max(0, wait.Seconds()), Unstored: true, BehindInput: true,
	})
}

func refusedAs(err error, code contract.Code) bool {
	var refused *contract.Error
	return errors.As(err, &refused) && refused.Code == code
}

// findBatch returns the execution of the recorded batch. It returns errBatchMissing if the
// batch will certainly not run any more: the iterations that it confirmed count, and the
// others run again.
func (run *runner) findBatch(ctx context.Context) (contract.Execution, error) {
	b := run.record.InFlight
	if b.ExecutionID == "" { // the submit's answer was lost, or the relay died before it arrived
		id, err := run.findByRequestID(ctx, b)
		switch {
		case err != nil:
			return contract.Execution{}, err
		case run.vmReplaced():
			return contract.Execution{}, errBatchMissing
		case id == "":
			return run.resubmit(ctx)
		}
		b.ExecutionID = id
	}
	e, err := run.vm.Execution(ctx, b.ExecutionID, b.Offset, 0, contract.MaxReadBytes)
	if refusedAs(err, contract.CodeNotFound) {
		if !run.vmReplaced() {
			run.addNote("the VM no longer has the batch of iterations %d to %d; the kernel's own record says which of them ran", b.Lo, b.Hi-1)
		}
		return e, errBatchMissing
	}
	return e, err
}

// findByRequestID returns the execution_id of a batch, or an empty string if the VM does not
// list it.
func (run *runner) findByRequestID(ctx context.Context, b *Batch) (id string, err error) {
	list, err := run.vm.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return "", err
	}
	for _, e := range list.Executions {
		if e.RequestID == b.RequestID {
			return e.ExecutionID, nil
		}
	}
	return "", nil
}

// vmReplaced reports whether the VM that answered last is not the one that the batch was
// submitted to, and adds a note if so.
func (run *runner) vmReplaced() bool {
	b := run.record.InFlight
	if run.vm.InstanceID() == b.InstanceID {
		return false
	}
	run.addNote("the VM was replaced: iterations of the batch from %d to %d that were not confirmed run again on the new one", b.Lo, b.Hi-1)
	return true
}

// resubmit submits a batch that the VM does not list, with its old request_id. If the first
// request arrives later, the batch still runs only once.
func (run *runner) resubmit(ctx context.Context) (contract.Execution, error) {
	b := run.record.InFlight
	if b.CodeSHA256 != hash(run.batchCode(b)) { // the code changed, or the relay's release
		return contract.Execution{}, errBatchMissing
	}
	e, err := run.send(ctx)
	if refusedAs(err, contract.CodeNewInstance) && run.vmReplaced() {
		return e, errBatchMissing
	}
	return e, err
}

// interruptAbandoned interrupts the running batch of a run that was replaced. It ignores
// errors, because the batch or its VM may have ended.
func (run *runner) interruptAbandoned(ctx context.Context) {
	b := run.abandoned
	if b == nil {
		return
	}
	run.abandoned = nil
	id, err := b.ExecutionID, error(nil)
	if id == "" {
		id, err = run.findByRequestID(ctx, b)
	}
	if err != nil || id == "" {
		return
	}
	if _, err := run.vm.Interrupt(ctx, id); err == nil {
		run.addNote("the running batch of the replaced run was interrupted")
	}
}

// follow reads the batch from its answer e on: to its end, until the call's time is over or
// until the batch, or the run that it is queued behind, waits for input.
func (run *runner) follow(ctx context.Context, e contract.Execution) (contract.Execution, error) {
	b := run.record.InFlight
	b.ExecutionID = e.ExecutionID
	return client.Follow(client.WithBehindInput(ctx), run.vm, e, client.FollowOptions{
		From: b.Offset, Until: run.opt.Until, MaxBytes: contract.MaxReadBytes, Instance: b.InstanceID,
		Visit:   func(e contract.Execution) bool { run.readEvents(e); return client.BehindInput(e) == nil },
		Spacing: run.spacing,
	})
}

// spacing is how long to wait before the next read: less when the batch's end is near.
func (run *runner) spacing() time.Duration {
	b, r := run.record.InFlight, run.record
	rest := time.Duration(float64(b.Hi-r.Done) * r.MeanSeconds * float64(time.Second))
	rest = min(rest, batchTime-time.Since(b.SubmittedAt))
	return min(max(rest, minPause), maxPause)
}

// readEvents applies the markers of an answer and passes its other events to Output.
func (run *runner) readEvents(e contract.Execution) {
	b := run.record.InFlight
	if e.KernelID != "" { // a queued one has none
		run.record.KernelID, run.record.InstanceID = e.KernelID, b.InstanceID
	}
	output := e.Events[:0:0]
	for _, ev := range e.Events {
		switch {
		case IsMarker(ev):
			run.applyMarker(ev, e.KernelID)
			continue
		case kernelpy.IsMissing(ev.Data):
			run.seen.packageMissing = true
			continue
		case ev.Type == contract.EventGap:
			run.noteGap()
		case ev.Type == contract.EventStream:
			run.record.addOutput(ev.Text)
		}
		output = append(output, ev)
	}
	b.Offset = e.NextOffset
	run.out.Batch = e
	run.out.Batch.Events = nil
	if run.opt.Output != nil && len(output) > 0 {
		run.opt.Output(e.ExecutionID, output)
	}
}

func (run *runner) noteGap() {
	if !run.seen.gap {
		run.seen.gap = true
		run.addNote("part of the output of iterations %d to %d is missing, because it is more than the VM keeps of one execution", run.record.InFlight.Lo, run.record.InFlight.Hi-1)
	}
}
