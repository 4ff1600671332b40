package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const (
	// stopLimit bounds the request that ends a call's run when the call ends first.
	stopLimit = 5 * time.Second
	// maxReport bounds what a function in the kernel returns. Its JSON may escape every
	// character beyond ASCII.
	maxReport      = 1 << 20
	maxReportItems = 10_000 // of one array or object in it
)

// ask calls a function of the Python package in the kernel and returns its report. It waits
// in the queue like a run, and always answers within the call: if the kernel is occupied for
// so long, or the function takes longer than limit or the rest of the call, nothing of it
// remains in the queue.
func (c *call) ask(ctx context.Context, f kernelpy.Call, limit time.Duration) (json.RawMessage, *Problem) {
	f.Delivery = kernelpy.Display
	for _, withPackage := range []bool{false, true} {
		q := &question{call: c, mime: f.MIME}
		report, p := q.put(ctx, f.Code(withPackage), limit)
		if p != nil || !q.missing {
			return report, p
		}
	}
	return nil, internalProblem("the kernel did not keep the relay's Python package")
}

// question is one execution of ask.
type question struct {
	*call
	mime    string
	last    contract.Execution
	report  json.RawMessage
	missing bool // the kernel does not have the package and called nothing
}

func (q *question) put(ctx context.Context, code string, limit time.Duration) (json.RawMessage, *Problem) {
	wait := q.waitBudget()
	e, err := q.target.Client.Submit(ctx, contract.Submit{
		Code: code, Unstored: true, BehindInput: true, WaitSeconds: wait.Seconds(), TimeoutSeconds: limit.Seconds(),
	})
	if err != nil {
		return nil, problemOf(err)
	}
	defer q.stop(ctx, e.ExecutionID)
	_, err = client.Follow(client.WithBehindInput(ctx), q.target.Client, e, client.FollowOptions{
		Until: time.Now().Add(q.waitBudget()), MaxBytes: contract.MaxReadBytes, Instance: q.target.Client.InstanceID(), Visit: q.visit,
	})
	q.checkKernel(q.last.KernelID)
	q.warnOfEnd(q.last.SessionMinutesLeft)
	switch {
	case q.last.End:
		return q.outcome(ctx)
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return nil, problemOf(err)
	}
	return nil, q.late()
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

// outcome returns the report of a run that has ended.
func (q *question) outcome(ctx context.Context) (json.RawMessage, *Problem) {
	if p := runProblem(q.last); p != nil {
		return nil, p
	}
	if q.report == nil {
		if q.missing {
			return nil, nil
		}
		return nil, internalProblem("the kernel returned no report")
	}
	report, err := q.whole(ctx)
	if err == nil {
		err = client.CheckItems(report, map[string]int{"": maxReportItems})
	}
	if err != nil {
		return nil, internalProblem("reading the kernel's report: " + err.Error())
	}
	return report, nil
}

// whole returns the report, which may be a blob.
func (q *question) whole(ctx context.Context) (json.RawMessage, error) {
	var ref contract.BlobRef
	if json.Unmarshal(q.report, &ref) != nil || ref.Blob.SHA256 == "" {
		return q.report, nil
	}
	b := bounded.Buffer{Max: maxReport}
	err := q.target.Client.Blob(ctx, q.last.ExecutionID, ref.Blob, &b)
	return b.Bytes(), err
}

// late is the problem of a call whose time is over before the run has ended.
func (q *question) late() *Problem {
	if q.last.Status != contract.StatusQueued {
		return &Problem{
			Code: string(contract.StatusTimedOut), Message: "it took longer than this call may take and was interrupted",
			Hint: "Ask for less, or do it in run_code_long.",
		}
	}
	p := refusalProblem(&contract.Error{
		Code: contract.CodeKernelBusy, Behind: q.last.Behind, Message: "another run occupies the kernel; this call waited, and its place in the queue was given up",
	})
	if b := client.Behind(q.last); b != nil && client.WaitsForInput(b) == nil {
		p.Message = fmt.Sprintf("run %s occupies the kernel; this call waited, and its place in the queue was given up", b.ExecutionID)
		p.Hint = hint.ForRefusal(&contract.Error{Code: contract.CodeKernelBusy}).Model
	}
	return p
}

// stop ends the run if it has not ended: nobody will read it.
func (q *question) stop(ctx context.Context, id string) {
	if q.last.Status.Finished() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	_, _ = q.target.Client.Interrupt(ctx, id) // at the latest its own deadline ends it
}
