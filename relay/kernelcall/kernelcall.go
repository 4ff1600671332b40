// Package kernelcall calls a function of the Python package in the kernel and waits for what
// it returns. The call leaves no trace in the notebook's history, and nothing of it remains in
// the queue when it returns. Work that must survive the relay is not for this package: see
// relay/kernelstate and relay/chunked.
//
// Start reading at Ask.
package kernelcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// VM is what Ask needs of a *client.Client.
type VM interface {
	client.ExecutionReader
	Submit(ctx context.Context, s contract.Submit) (contract.Execution, error)
	Interrupt(ctx context.Context, id string) (contract.Execution, error)
	Blob(ctx context.Context, id string, blob contract.Blob, w io.Writer) error
}

// Options bound a call.
type Options struct {
	Until     time.Time      // when Ask returns, at the latest
	Limit     time.Duration  // how long the function may take
	MaxReport int64          // bytes of what the function returns
	MaxItems  map[string]int // items of arrays and objects in it, by field; "" for those of no field
}

var (
	// ErrNoReport: the function ran, but what it returned did not arrive: the kernel's display
	// publisher was replaced, or its messages are lost.
	ErrNoReport = errors.New("the kernel returned no report")
	// ErrNotKept: the kernel said twice that it does not have the Python package.
	ErrNotKept = errors.New("the kernel did not keep the relay's Python package")
)

// LateError: the time was over before the call ended. The call was withdrawn.
type LateError struct{ Last contract.Execution }

// Error says what the call was waiting for.
func (e *LateError) Error() string {
	if e.Last.Status == contract.StatusQueued {
		return "another run occupies the kernel"
	}
	return "the kernel did not answer in time"
}

// EndedError: the call's execution ended in another way than succeeded.
type EndedError struct{ Last contract.Execution }

// Error names the exception, or the status.
func (e *EndedError) Error() string {
	if e.Last.Error != nil {
		return fmt.Sprintf("the kernel's answer is the exception %s: %s", e.Last.Error.EName, e.Last.Error.EValue)
	}
	return fmt.Sprintf("the call in the kernel ended as %s", e.Last.Status)
}

// stopLimit bounds the request that withdraws a call.
const stopLimit = 5 * time.Second

// Ask calls a function and returns its report, and the execution as last read. It waits in the
// queue like a run until o.Until, and no longer than ctx. The function may be called more than
// once only if its execution reports that it ran nothing.
func Ask(ctx context.Context, vm VM, f kernelpy.Call, o Options) (json.RawMessage, contract.Execution, error) {
	f.Delivery = kernelpy.Display
	q := &question{vm: vm, o: o, mime: f.MIME}
	title := fmt.Sprintf("# colab-relay: %s\n", f.Function) // for lists of executions
	for _, withPackage := range []bool{false, true} {
		q.missing, q.report = false, nil
		report, err := q.put(ctx, title+f.Code(withPackage))
		if err != nil || !q.missing {
			return report, q.last, err
		}
	}
	return nil, q.last, ErrNotKept
}

// question is the work of Ask.
type question struct {
	vm      VM
	o       Options
	mime    string
	last    contract.Execution
	report  json.RawMessage
	missing bool // the kernel does not have the package and called nothing
}

func (q *question) put(ctx context.Context, code string) (json.RawMessage, error) {
	e, err := q.vm.Submit(ctx, contract.Submit{
		Code: code, Unstored: true, BehindInput: true, TimeoutSeconds: q.o.Limit.Seconds(),
		WaitSeconds: max(0, time.Until(q.o.Until).Seconds()),
	})
	if err != nil {
		return nil, err
	}
	q.last = e
	defer func() { q.stop(ctx) }()
	_, err = client.Follow(client.WithBehindInput(ctx), q.vm, e, client.FollowOptions{
		Until: q.o.Until, MaxBytes: contract.MaxReadBytes, Instance: q.vm.InstanceID(), Visit: q.visit,
	})
	switch {
	case q.last.End:
		return q.outcome(ctx)
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return nil, err
	}
	return nil, &LateError{q.last}
}

// visit takes an answer and reports whether to read on.
func (q *question) visit(e contract.Execution) bool {
	q.last = e
	for _, event := range e.Events {
		if data, ok := event.Data[q.mime]; ok && event.Type == contract.EventDisplayData {
			q.report = data
		}
		q.missing = q.missing || kernelpy.IsMissing(event.Data)
	}
	return client.BehindInput(e) == nil
}

// outcome returns the report of an execution that has ended.
func (q *question) outcome(ctx context.Context) (json.RawMessage, error) {
	switch {
	case q.last.Status != contract.StatusSucceeded:
		return nil, &EndedError{q.last}
	case q.report == nil && q.missing:
		return nil, nil
	case q.report == nil:
		return nil, ErrNoReport
	}
	q.missing = false // the function was called all the same
	report, err := q.whole(ctx)
	if err == nil {
		err = client.CheckItems(report, q.o.MaxItems)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's report: %w", err)
	}
	return report, nil
}

// whole returns the report, which may be a blob.
func (q *question) whole(ctx context.Context) (json.RawMessage, error) {
	var ref contract.BlobRef
	if json.Unmarshal(q.report, &ref) != nil || ref.Blob.SHA256 == "" {
		return q.report, nil
	}
	if ref.Blob.Bytes > q.o.MaxReport {
		return nil, fmt.Errorf("%w: it has %d bytes", bounded.ErrTooLong, ref.Blob.Bytes)
	}
	b := bounded.Buffer{Max: q.o.MaxReport}
	err := q.vm.Blob(ctx, q.last.ExecutionID, ref.Blob, &b)
	return b.Bytes(), err
}

// stop ends an execution that has not ended: nobody will read it.
func (q *question) stop(ctx context.Context) {
	if q.last.Status.Finished() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	_, _ = q.vm.Interrupt(ctx, q.last.ExecutionID) // at the latest its own deadline ends it
}
