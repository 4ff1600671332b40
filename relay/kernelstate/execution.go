package kernelstate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// maxReport bounds the report of an operation; save.py makes shorter ones.
const maxReport = 32 << 20

// step is one execution of an operation. It is on disk before it is submitted, so that a call
// that resumes the work finds the same execution, and nothing runs twice.
type step struct {
	RequestID   string `json:"request_id"`
	ExecutionID string `json:"execution_id,omitempty"` // empty until the submit was answered
	WithPackage bool   `json:"with_package,omitempty"` // its code includes the Python package

	Deadline time.Duration `json:"-"` // on the VM; 0 means deadline
}

// work is a step, its code, and how to save the step.
type work struct {
	*step
	operation operation
	save      func() error
}

// run submits an operation, or finds the one that an earlier call submitted, and returns its
// report. The report is nil if the call's time is over before the operation ends.
//
// If the kernel does not have the Python package, the step becomes a new execution whose
// code includes the package.
func (j *job) run(ctx context.Context, w work, p *Progress) (json.RawMessage, error) {
	report, err := j.runStep(ctx, w, p)
	if !errors.Is(err, errPackageMissing) {
		return report, err
	}
	*w.step = step{RequestID: rand.Text(), WithPackage: true, Deadline: w.Deadline}
	if err := w.save(); err != nil {
		return nil, err
	}
	return j.runStep(ctx, w, p)
}

func (j *job) runStep(ctx context.Context, w work, p *Progress) (json.RawMessage, error) {
	e := contract.Execution{ExecutionID: w.ExecutionID}
	if w.ExecutionID == "" {
		var err error
		if e, err = j.submit(ctx, w); err != nil {
			return nil, err
		}
	}
	r, err := j.follow(ctx, e)
	p.At = r.at
	p.Execution, p.Queued = r.last, r.last.Status == contract.StatusQueued
	if err != nil || !r.last.End {
		return nil, err
	}
	if r.packageMissing && r.report == nil && !w.WithPackage && r.last.Status == contract.StatusSucceeded {
		return nil, errPackageMissing
	}
	return j.reportOf(ctx, r)
}

// errPackageMissing: the kernel does not have the Python package, so the operation did not run.
var errPackageMissing = errors.New("the kernel does not have the package")

// submit submits the step and saves it with its execution_id, unless it has finished.
func (j *job) submit(ctx context.Context, w work) (contract.Execution, error) {
	e, err := j.c.SubmitTo(ctx, j.c.InstanceID(), contract.Submit{
		RequestID: w.RequestID, Code: w.operation.code(w.WithPackage), Unstored: true,
		TimeoutSeconds: cmp.Or(w.Deadline, deadline).Seconds(), WaitSeconds: max(0, j.left().Seconds()),
		BehindInput: j.stopsAtPrompt(),
	})
	if err != nil {
		return e, err
	}
	w.ExecutionID = e.ExecutionID
	if e.Status.Finished() {
		return e, nil
	}
	return e, w.save()
}

// reading is what was read of an operation's execution.
type reading struct {
	last   contract.Execution // without events
	report json.RawMessage
	at     At

	packageMissing bool // the kernel reported that it does not have the Python package
}

// stopsAtPrompt reports whether the call returns when its execution is queued behind one that
// waits for input. A Keeper has no one to tell, and its time is short.
func (j *job) stopsAtPrompt() bool { return j.o.run == nil }

// follow reads an execution from its answer e on, until its end or until the call must
// return.
func (j *job) follow(ctx context.Context, e contract.Execution) (r reading, err error) {
	if j.stopsAtPrompt() {
		ctx = client.WithBehindInput(ctx)
	}
	r.last, err = client.Follow(ctx, j.c, e, client.FollowOptions{
		Until: j.o.Until,
		Visit: func(e contract.Execution) bool {
			r.apply(e.Events)
			return !j.stopsAtPrompt() || client.BehindInput(e) == nil
		},
		Spacing: func() time.Duration { return 0 }, // reports of progress are few
	})
	return r, err
}

func (r *reading) apply(events []contract.Event) {
	for _, event := range events {
		if data, ok := event.Data[mime]; ok && event.Type == contract.EventDisplayData {
			r.report = data
		}
		r.packageMissing = r.packageMissing || kernelpy.IsMissing(event.Data)
		if data, ok := event.Data[progressMIME]; ok {
			r.at = At{} // in case it can't be read
			_ = json.Unmarshal(data, &r.at)
		}
	}
}

// reportOf returns the report of an operation that has ended.
func (j *job) reportOf(ctx context.Context, r reading) (json.RawMessage, error) {
	if r.last.Status != contract.StatusSucceeded {
		return nil, &RunError{r.last}
	}
	if r.report == nil {
		return nil, ErrNoReport
	}
	var ref contract.BlobRef
	if json.Unmarshal(r.report, &ref) != nil || ref.Blob.SHA256 == "" {
		return r.report, nil
	}
	if ref.Blob.Bytes > maxReport {
		return nil, errReportTooLong
	}
	b := bounded.Buffer{Max: maxReport}
	if err := j.c.Blob(ctx, r.last.ExecutionID, ref.Blob, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// errReportTooLong is distinct from bounded.ErrTooLong, which an answer that was changed on
// its way also causes: such an operation can be resumed.
var errReportTooLong = errors.New("the kernel's report is too long")

// isFinal reports whether an error means that an operation can't be resumed: it failed, or
// the executor does not know it.
func isFinal(err error) bool {
	var (
		run     *RunError
		refused *contract.Error
	)
	if errors.As(err, &run) || errors.Is(err, ErrNoReport) || errors.Is(err, errReportTooLong) {
		return true
	}
	if errors.As(err, &refused) {
		switch refused.Code {
		case contract.CodeNotFound, contract.CodeConflict, contract.CodeNewInstance:
			return true
		}
	}
	return false
}

// clearWait bounds how long an answer waits until the kernel has deleted a file. If the
// answer came earlier, the caller's next request for the variables would be refused as
// kernel_busy. The deletion takes longer only while the kernel runs other code, and then
// that refusal is right.
const clearWait = 3 * time.Second

// removeRemote deletes a state's file and its folder on the VM. If that fails, the next save
// there deletes folders that are a day old.
func (j *job) removeRemote(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, clearWait+2*time.Second)
	defer cancel()
	for _, withPackage := range []bool{false, true} {
		e, err := j.c.Submit(ctx, contract.Submit{
			Code: j.operation(clearTitle, "remove", path).code(withPackage), Unstored: true, TimeoutSeconds: 60, WaitSeconds: clearWait.Seconds(),
		})
		missing := func(event contract.Event) bool { return kernelpy.IsMissing(event.Data) }
		if err != nil || !slices.ContainsFunc(e.Events, missing) {
			return
		}
	}
}

// decode decodes a report into v.
func decode(report json.RawMessage, v any) error {
	if err := client.CheckItems(report, reportItems); err != nil {
		return fmt.Errorf("%w: %v", ErrUntrustedReport, err)
	}
	if err := json.Unmarshal(report, v); err != nil {
		return fmt.Errorf("%w: %v", ErrUntrustedReport, err)
	}
	return nil
}
