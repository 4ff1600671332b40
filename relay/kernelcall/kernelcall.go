// Package kernelcall calls a function of the Python package in the kernel and waits for what
// it returns. The call leaves no trace in the notebook's history.
//
// With Ask, nothing of the call remains in the queue when it returns. A Ticket is a call that
// survives the relay: it is part of the record of the work that the call does, such as a kernel
// state's, and a later call, also of another process, goes on with the same execution.
//
// Start reading at Ask and Ticket.Call.
package kernelcall

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// VM is what a call needs of a *client.Client.
type VM interface {
	client.ExecutionReader
	Submit(ctx context.Context, s contract.Submit) (contract.Execution, error)
	Interrupt(ctx context.Context, id string) (contract.Execution, error)
	Blob(ctx context.Context, id string, blob contract.Blob, w io.Writer) error
}

// Options bound a call.
type Options struct {
	Title     string        // the first line of its code, for lists of executions; empty means the function's name
	Until     time.Time     // when the call returns, at the latest
	Limit     time.Duration // how long the function may take
	MaxReport int64         // bytes of what the function returns

	// The rest is for tickets.

	Save        func() error             // writes the ticket's record to disk
	Visit       func(contract.Execution) // gets each answer, with its new events; may be nil
	BehindInput bool                     // wait on while the call is queued behind a run that waits for input
}

var (
	// ErrNoReport: the function ran, but what it returned did not arrive: the kernel's display
	// publisher was replaced, or its messages are lost.
	ErrNoReport = errors.New("the kernel returned no report")
	// ErrSlow: the function began, but did not end in time.
	ErrSlow = errors.New("it took longer than this call may take and was interrupted")
)

// LateError: the time was over before the call began. Its place in the queue was given up.
type LateError struct{ Last contract.Execution }

// Error says what the call was waiting for.
func (e *LateError) Error() string {
	occupied := "another run occupies"
	if b := client.Behind(e.Last); b != nil {
		occupied = fmt.Sprintf("run %s occupies", b.ExecutionID)
	}
	return occupied + " the kernel; this call waited, and its place in the queue was given up"
}

// Unwrap returns what an executor answers to a call that does not wait.
func (e *LateError) Unwrap() error {
	return &contract.Error{Code: contract.CodeKernelBusy, Behind: e.Last.Behind}
}

// EndedError: the call's execution ended in another way than succeeded.
type EndedError struct{ Last contract.Execution }

// Outcome is how it ended.
func (e *EndedError) Outcome() contract.Status { return e.Last.Status }

// Error names the exception, or the status.
func (e *EndedError) Error() string {
	if e.Last.Error != nil {
		return fmt.Sprintf("the kernel's answer is the exception %s: %s", e.Last.Error.EName, e.Last.Error.EValue)
	}
	return fmt.Sprintf("the call in the kernel ended as %s", e.Last.Status)
}

// stopLimit bounds the request that withdraws a call.
const stopLimit = 5 * time.Second

// Ask calls a function and returns its report, for client.Decode, and the execution as last read. It waits in the
// queue like a run until o.Until, and no longer than ctx. The function may be called more than
// once only if its execution reports that it ran nothing.
func Ask(ctx context.Context, vm VM, f kernelpy.Call, o Options) (json.RawMessage, contract.Execution, error) {
	t := New()
	report, last, err := t.Call(ctx, vm, f, o)
	if !last.End && last.ExecutionID != "" {
		stop(ctx, vm, last)
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			if err = ErrSlow; last.Status == contract.StatusQueued {
				err = &LateError{last}
			}
		}
	}
	return report, last, err
}

// stop ends an execution that has not ended: nobody will read it.
func stop(ctx context.Context, vm VM, last contract.Execution) {
	if last.Status.Finished() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	_, _ = vm.Interrupt(ctx, last.ExecutionID) // at the latest its own deadline ends it
}

// Ticket is a call in the record of the work that it does. Its user writes it to disk before the
// call, so that nothing is called twice.
type Ticket struct {
	RequestID   string `json:"request_id"`
	ExecutionID string `json:"execution_id,omitempty"` // empty until the submit was answered
	WithPackage bool   `json:"with_package,omitempty"` // its code includes the Python package
}

// New returns the ticket of a call that is about to be made.
func New() Ticket { return Ticket{RequestID: rand.Text()} }

// Call makes the call, or goes on with it, and returns its report, and the execution as last read.
// The report is nil, without an error, if the call has not ended when Call must return; the
// same Call then goes on. If the kernel does not have the Python package, the ticket becomes
// that of a new execution, whose code includes the package.
func (t *Ticket) Call(ctx context.Context, vm VM, f kernelpy.Call, o Options) (report json.RawMessage, last contract.Execution, err error) {
	f.Delivery = kernelpy.Display
	q := &question{Ticket: t, vm: vm, call: f, o: o}
	err = kernelpy.Load(func(withPackage bool) (missing bool, err error) {
		if withPackage && !t.WithPackage {
			*t = Ticket{RequestID: rand.Text(), WithPackage: true}
			if err := q.save(); err != nil {
				return false, err
			}
		}
		report, err = q.put(ctx)
		return q.missing, err
	})
	return report, q.last, err
}

// question is the work of Call.
type question struct {
	*Ticket
	vm      VM
	call    kernelpy.Call
	o       Options
	last    contract.Execution // without events
	report  json.RawMessage
	missing bool // the kernel does not have the package and called nothing
}

func (q *question) save() error {
	if q.o.Save == nil {
		return nil
	}
	return q.o.Save()
}

// put submits the call, unless it was submitted, and reads it to its end or until the time is over.
func (q *question) put(ctx context.Context) (json.RawMessage, error) {
	q.missing, q.report = false, nil
	e := contract.Execution{ExecutionID: q.ExecutionID}
	if q.ExecutionID == "" {
		var err error
		if e, err = q.submit(ctx); err != nil {
			return nil, err
		}
	}
	q.last, q.last.Events = e, nil
	if !q.o.BehindInput {
		ctx = client.WithBehindInput(ctx)
	}
	_, err := client.Follow(ctx, q.vm, e, client.FollowOptions{
		Until: q.o.Until, MaxBytes: contract.MaxReadBytes, Instance: q.vm.InstanceID(), Visit: q.visit,
		Spacing: func() time.Duration { return 0 }, // a call prints little
	})
	if err != nil || !q.last.End {
		return nil, err
	}
	return q.outcome(ctx)
}

// submit submits the call and saves its execution_id, unless it has ended.
func (q *question) submit(ctx context.Context) (contract.Execution, error) {
	title := cmp.Or(q.o.Title, "colab-relay: "+q.call.Function)
	e, err := q.vm.Submit(ctx, contract.Submit{
		RequestID: q.RequestID, Code: "# " + title + "\n" + q.call.Code(q.WithPackage), Unstored: true, BehindInput: !q.o.BehindInput,
		TimeoutSeconds: q.o.Limit.Seconds(), WaitSeconds: max(0, time.Until(q.o.Until).Seconds()),
	})
	if err != nil {
		return e, err
	}
	if q.ExecutionID = e.ExecutionID; e.Status.Finished() {
		return e, nil
	}
	return e, q.save()
}

// visit takes an answer and reports whether to read on. It keeps nothing of the events but a report:
// a slow executor decides how long.
func (q *question) visit(e contract.Execution) bool {
	if q.o.Visit != nil {
		q.o.Visit(e)
	}
	for _, event := range e.Events {
		if data, ok := event.Data[q.call.MIME]; ok && event.Type == contract.EventDisplayData && len(data) <= client.MaxInline {
			q.report = data
		}
		q.missing = q.missing || kernelpy.IsMissing(event.Data)
	}
	q.last, q.last.Events = e, nil
	return q.o.BehindInput || client.BehindInput(e) == nil
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
	q.missing = false // the function was called nevertheless
	report, err := client.ReadReport(ctx, q.vm, q.last.ExecutionID, q.report, q.o.MaxReport)
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's report: %w", err)
	}
	return report, nil
}
