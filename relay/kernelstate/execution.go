package kernelstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/kernelcall"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

const (
	// mime is the type of the display output that has an operation's report.
	mime = contract.OwnMIME + "state+json"
	// progressMIME is the type of the display outputs by which state/progress.py reports At.
	progressMIME = contract.OwnMIME + "state-progress+json"
	// maxReport bounds the report of an operation; save.py makes shorter ones.
	maxReport = 16 << 20
)

// Titles of the operations. The first line of an operation starts with "# " and its title.
const (
	saveTitle    = "colab-relay: save state"
	prepareTitle = "colab-relay: prepare to restore state"
	restoreTitle = "colab-relay: restore state"
	clearTitle   = "colab-relay: delete files of state"
)

// operation is a call of a function of state/operate.py in shared/kernelpy.
type operation struct {
	title string
	call  kernelpy.Call
	limit time.Duration
}

func operationOf(title, function string, arguments ...any) operation {
	return operation{title, kernelpy.Call{Function: "state.operate." + function, Arguments: arguments, MIME: mime}, deadline}
}

// pinned is a client whose submits go to the VM that the work is on, and to no other.
type pinned struct{ *client.Client }

func (p pinned) Submit(ctx context.Context, s contract.Submit) (contract.Execution, error) {
	return p.SubmitTo(ctx, p.InstanceID(), s)
}

// run makes the ticket's call, or goes on with the one of an earlier call, and returns its report.
// The report is nil if the call's time is over before the operation ends. A Keeper waits also
// behind a run that asks for input: it has no one to tell, and its time is short.
func (j *job) run(ctx context.Context, t *kernelcall.Ticket, op operation, save func() error, p *Progress) (json.RawMessage, error) {
	report, last, err := t.Call(ctx, pinned{j.c}, op.call, kernelcall.Options{
		Title: fmt.Sprintf("%s %q", op.title, j.o.Name), Until: j.o.Until, Limit: op.limit, MaxReport: maxReport,
		Save: save, Visit: p.see, BehindInput: j.o.kept,
	})
	p.Execution, p.Queued = last, last.Status == contract.StatusQueued
	return report, err
}

// see takes in which variable the kernel is at.
func (p *Progress) see(e contract.Execution) {
	for _, event := range e.Events {
		if data, ok := event.Data[progressMIME]; ok {
			p.At = At{} // in case it can't be read
			_ = json.Unmarshal(data, &p.At)
		}
	}
}

// isFinal reports whether an error means that an operation can't be resumed: it failed, or
// the executor does not know it.
func isFinal(err error) bool {
	if _, ended := errors.AsType[*kernelcall.EndedError](err); ended || errors.Is(err, kernelcall.ErrNoReport) || errors.Is(err, client.ErrReportTooLong) {
		return true
	}
	refused, ok := errors.AsType[*contract.Error](err)
	return ok && (refused.Code == contract.CodeNotFound || refused.Code == contract.CodeConflict || refused.Code == contract.CodeNewInstance)
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
	o := *j
	o.o.Until, o.o.kept = time.Now().Add(clearWait), true
	t, op := kernelcall.New(), operationOf(clearTitle, "remove", path)
	op.limit = time.Minute
	_, _ = o.run(ctx, &t, op, nil, &Progress{})
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
