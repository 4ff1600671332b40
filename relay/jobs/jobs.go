// Package jobs remembers on the laptop which job of an executor does a piece of work, and how
// far what the job did has been read. A later call, also of another process, goes on from
// there: it submits nothing again, and reads each event once.
//
// A Ticket is part of the record of the work, which its user writes to disk: before the job is
// submitted (with all of it, until the VM has confirmed it), and after what was read of it has been
// taken in. The package must not know what the steps do.
//
// Start reading at Ticket.Submit and Ticket.Follow.
package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// Errors of tickets, besides those of relay/client.
var (
	// ErrReplaced: another VM answers than the one that the job was submitted to. The job has
	// ended with that VM.
	ErrReplaced = errors.New("another VM answers at this address")
	// ErrUnknown: the VM does not know the job: it never arrived, or the executor lost its
	// state folder, or the job has ended so long ago that its steps are not listed any more.
	ErrUnknown = errors.New("the VM does not know the job")
	// ErrAnswer: an answer that no executor gives.
	ErrAnswer = errors.New("the executor's answer does not fit the job")
)

// VM is the executor as a ticket uses it; *client.Client implements it.
type VM interface {
	client.ExecutionReader
	SubmitJobTo(ctx context.Context, instanceID string, s contract.JobSubmit) (contract.Job, error)
	Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error)
	PatchJob(ctx context.Context, instanceID, id string, p contract.JobPatch) (contract.Job, error)
	DeleteJob(ctx context.Context, instanceID, id string, interrupt bool) (contract.Job, error)
}

// Ticket is a job in the record of the work that it does.
type Ticket struct {
	JobID      string            `json:"job_id"`
	InstanceID string            `json:"instance_id"` // of the only VM that may run it
	Accepted   bool              `json:"accepted"`    // the VM said that it has the job
	MayRun     bool              `json:"may_run"`     // it may have the job: it was sent, or is about to be
	State      contract.JobState `json:"state"`       // as last read
	Cause      contract.JobCause `json:"cause,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	KernelID   string            `json:"kernel_id"`
	Revision   int               `json:"revision"`
	Entry      int               `json:"entry"`        // the first entry that was not read to its end
	Execution  string            `json:"execution_id"` // of that entry, if some of it was read
	Offset     int64             `json:"offset"`       // its first event that was not read
	// Read is how that execution ended, once it was read to its end. What was read stands.
	Read contract.Status `json:"read,omitempty"`
	// Failed is how the last entry ended that ran and did not succeed.
	Failed contract.Status `json:"failed,omitempty"`
	// Unsent is the job, until the VM has said that it has it.
	Unsent *contract.JobSubmit `json:"unsent,omitempty"`
}

// New returns the ticket of a job that is to be submitted to one VM.
func New(instanceID string, s contract.JobSubmit) Ticket {
	s.JobID = rand.Text()
	return Ticket{JobID: s.JobID, InstanceID: instanceID, KernelID: s.KernelID, State: contract.JobQueued, Unsent: &s}
}

// IsConsistent reports whether a ticket that was read from disk can be sent, or followed.
func (t *Ticket) IsConsistent() bool {
	return t.JobID != "" && (t.Accepted || t.Unsent != nil) && t.Entry >= 0 && t.Offset >= 0
}

// Submit submits the job, or finds it if an earlier attempt has arrived: the VM runs a job_id
// once. It does nothing if the VM is known to have it. Before and after, save writes the ticket to
// disk. After an error MayRun says whether the VM may have the job nevertheless; ErrReplaced means
// that another VM answers, which has not.
func (t *Ticket) Submit(ctx context.Context, vm VM, save func() error) error {
	if t.Accepted {
		return nil
	}
	before := t.MayRun
	t.MayRun = true
	if err := save(); err != nil {
		t.MayRun = before
		return err
	}
	j, err := vm.SubmitJobTo(ctx, t.InstanceID, *t.Unsent)
	if err != nil {
		_, unsent := errors.AsType[*client.Error](err)
		if !client.MayRun(err) && (unsent || IsRefused(err)) {
			t.MayRun = before // a refusal says nothing about an earlier attempt
		}
		return t.meaning(vm, err)
	}
	t.Accepted, t.Unsent = true, nil
	return errors.Join(t.see(j), save())
}

// IsRefused reports whether the executor certainly runs nothing of what was sent.
func IsRefused(err error) bool {
	_, refused := errors.AsType[*contract.Error](err)
	return refused && !client.MayRun(err)
}

// IsGone reports whether the end of a job can't be read any more.
func IsGone(err error) bool {
	return errors.Is(err, ErrReplaced) || errors.Is(err, ErrUnknown)
}

// IsRead reports whether the job has ended and was read to its end.
func (t *Ticket) IsRead(now contract.Job) bool { return now.State.Ended() && t.Entry >= now.Entries }

// Edit replaces the steps from the one named from, which has not begun, to the end. A conflict
// means that the step has begun, the job has ended, or the edit has arrived already, as the job's
// revision then shows.
func (t *Ticket) Edit(ctx context.Context, vm VM, from string, steps []contract.JobStep) error {
	j, err := vm.PatchJob(ctx, t.InstanceID, t.JobID, contract.JobPatch{Revision: t.Revision, From: from, Steps: steps})
	if err != nil {
		return t.meaning(vm, err)
	}
	return t.see(j)
}

// Stop has nothing further of the job begin. What runs goes on to its end, or is interrupted.
// A job that the VM does not have needs no stop.
func (t *Ticket) Stop(ctx context.Context, vm VM, interrupt bool) error {
	j, err := vm.DeleteJob(ctx, t.InstanceID, t.JobID, interrupt)
	switch err = t.meaning(vm, err); {
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrReplaced):
		return nil
	case err != nil:
		return err
	}
	t.Accepted, t.Unsent = true, nil
	return t.see(j)
}

// Ended reports whether the job has ended, as last read.
func (t *Ticket) Ended() bool { return t.State.Ended() }

// see takes in the head of an answer, unless no executor gives it.
func (t *Ticket) see(j contract.Job) error {
	wrong := ""
	switch {
	case j.JobID != t.JobID:
		wrong = "it is about another job"
	case t.State.Ended() && !j.State.Ended():
		wrong = "the job had ended, and is now reported as unfinished"
	case j.Entries < t.Entry:
		wrong = fmt.Sprintf("it has %d entries, of which %d were read", j.Entries, t.Entry)
	case t.KernelID != "" && j.KernelID != "" && t.KernelID != j.KernelID:
		wrong = "it is said to be in another kernel than before"
	}
	if wrong != "" {
		return fmt.Errorf("%w: %s", ErrAnswer, wrong)
	}
	t.State, t.Cause, t.Reason, t.Revision = j.State, j.Cause, j.Reason, j.Revision
	if j.KernelID != "" {
		t.KernelID = j.KernelID
	}
	return nil
}

// meaning turns refusals into the package's errors.
func (t *Ticket) meaning(vm VM, err error) error {
	refused, ok := errors.AsType[*contract.Error](err)
	switch {
	case !ok:
		return err
	case refused.Code == contract.CodeNewInstance:
		return fmt.Errorf("%w (%w)", ErrReplaced, err)
	case refused.Code == contract.CodeNotFound && vm.InstanceID() != t.InstanceID:
		return fmt.Errorf("%w (%w)", ErrReplaced, err)
	case refused.Code == contract.CodeNotFound:
		return fmt.Errorf("%w (%w)", ErrUnknown, err)
	}
	return err
}
