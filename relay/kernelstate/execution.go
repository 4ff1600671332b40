package kernelstate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// maxReport bounds the report of an execution; save.py keeps its own under it.
const maxReport = 32 << 20

// errTooLong is a report past maxReport.
var errTooLong = errors.New("the kernel's report is too long")

// step is an execution of ours. It is noted before it is submitted, so that a call
// that takes it up finds the same one and nothing runs twice.
type step struct {
	RequestID   string `json:"request_id"`
	ExecutionID string `json:"execution_id,omitempty"` // empty until the submit was answered

	Deadline time.Duration `json:"-"` // on the VM; deadline when 0
}

// run submits code, or finds what an earlier call submitted, and waits for its end as
// long as the call may. The report is nil while it is not done. note is called once
// the execution's id is known.
func (j *job) run(ctx context.Context, s *step, code string, p *Progress, note func() error) (json.RawMessage, error) {
	r := reading{id: s.ExecutionID}
	if r.id == "" {
		e, err := j.c.SubmitTo(ctx, j.c.InstanceID(), contract.Submit{
			RequestID: s.RequestID, Code: code, Unstored: true,
			TimeoutSeconds: cmp.Or(s.Deadline, deadline).Seconds(), WaitSeconds: max(0, j.left().Seconds()),
		})
		if err != nil {
			return nil, err
		}
		r.take(e)
		s.ExecutionID = e.ExecutionID
		if !e.Status.Finished() {
			if err := note(); err != nil {
				return nil, err
			}
		}
	}
	err := j.follow(ctx, &r)
	p.At = r.at
	p.Execution, p.Queued = r.last, r.last.Status == contract.StatusQueued
	if err != nil || !r.last.End {
		return nil, err
	}
	return j.reportOf(ctx, &r)
}

// reading is an execution of ours being read.
type reading struct {
	id     string
	next   int64
	last   contract.Execution
	report json.RawMessage
	at     At
}

func (r *reading) take(e contract.Execution) {
	for _, event := range e.Events {
		if data, ok := event.Data[mime]; ok && event.Type == contract.EventDisplayData {
			r.report = data
		}
		if data, ok := event.Data[progressMIME]; ok {
			r.at = At{} // one that can't be read tells nothing
			_ = json.Unmarshal(data, &r.at)
		}
	}
	r.id, r.next, r.last = e.ExecutionID, e.NextOffset, e
	r.last.Events = nil
}

// follow reads on until the end or until the call must answer.
func (j *job) follow(ctx context.Context, r *reading) error {
	for !r.last.End {
		left := j.left()
		if left < leastWait && !r.last.Status.Finished() && r.last.ExecutionID != "" {
			return nil
		}
		e, err := j.c.Execution(ctx, r.id, r.next, max(0, min(left, contract.MaxWait)), 0)
		if err != nil {
			return err
		}
		r.take(e)
	}
	return nil
}

// reportOf is what the kernel told at the end.
func (j *job) reportOf(ctx context.Context, r *reading) (json.RawMessage, error) {
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
		return nil, errTooLong
	}
	var b bounded
	if err := j.c.Blob(ctx, r.id, ref.Blob, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// bounded is a buffer that takes maxReport bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxReport {
		return 0, errTooLong
	}
	return b.Buffer.Write(p)
}

// over reports that an execution of ours can't be taken up again: it ended badly, or
// the executor knows nothing of it.
func over(err error) bool {
	var (
		run     *RunError
		refused *contract.Error
	)
	if errors.As(err, &run) || errors.Is(err, ErrNoReport) || errors.Is(err, errTooLong) {
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

// clearWait bounds how long an answer waits until the kernel has removed a file. An
// answer before that finds the kernel taken: the caller's next look at the variables
// would be refused as kernel_busy. The kernel takes longer only when another run
// holds it, and then the refusal is right.
const clearWait = 3 * time.Second

// removeRemote removes a file of ours, and its folder, on the VM. Where that fails,
// the next save there removes what is a day old.
func (j *job) removeRemote(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, clearWait+2*time.Second)
	defer cancel()
	_, _ = j.c.Submit(ctx, contract.Submit{
		Code: j.cell(clearTitle, "remove", path), Unstored: true, TimeoutSeconds: 60, WaitSeconds: clearWait.Seconds(),
	})
}

// decode reads a report into v.
func decode(report json.RawMessage, v any) error {
	if err := client.CheckItems(report, reportItems); err != nil {
		return fmt.Errorf("%w: %v", ErrUntrustedReport, err)
	}
	if err := json.Unmarshal(report, v); err != nil {
		return fmt.Errorf("%w: %v", ErrUntrustedReport, err)
	}
	return nil
}
