package remoterun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// ErrStillRunning: the person left a run that is still running on the VM.
var ErrStillRunning = errors.New("the run is still running on the VM")

// leftRunning is the error of a run that was left before its end. The cause may be a lost
// connection, which is then a *client.Error.
type leftRunning struct {
	id    string
	cause error
}

func (e *leftRunning) Error() string {
	return fmt.Sprintf("the run %s may still be running on the VM: %v; to come back: colab-relay attach %s", e.id, e.cause, e.id)
}

func (e *leftRunning) Unwrap() []error { return []error{ErrStillRunning, e.cause} }

func (r *run) leave(cause error) error { return &leftRunning{r.answer.ExecutionID, cause} }

// lost adds to the loss of the connection how to come back to the run.
func (r *run) lost(ctx context.Context, err error) error {
	if _, broken := errors.AsType[*client.Error](err); !broken || ctx.Err() != nil {
		return err
	}
	return r.leave(err)
}

// end interrupts the run and prints the rest of its output, for at most endWait or until
// a second signal.
func (r *run) end(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.endWait)
	defer cancel()
	waiting, stop := signal.NotifyContext(limited, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if r.out.broken == nil {
		if r.exec.Status == contract.StatusQueued {
			r.out.note("cancelling the run, which was queued; Ctrl-C again leaves it on the VM")
		} else {
			r.out.note("interrupting the run on the VM; Ctrl-C again leaves it running")
		}
	}
	err := r.interrupt(waiting)
	interrupted := err == nil
	if err != nil {
		err = fmt.Errorf("interrupt it: %w", err)
	}
	asked := r.out.prompt
	for err == nil && !r.exec.End {
		if err = r.read(waiting); err == nil && r.out.prompt != asked {
			// Nobody reads an answer here any more: it would go to the shell.
			return r.leave(errors.New("it asks for input again"))
		}
	}
	switch {
	case err == nil, isNewInstance(err):
		return err
	case limited.Err() != nil && interrupted:
		return r.leave(fmt.Errorf("it did not end within %s of the interrupt", r.endWait))
	case waiting.Err() != nil && limited.Err() == nil:
		return r.leave(errors.New("stopped waiting"))
	}
	return r.leave(err)
}

// interrupt interrupts the run. A run that has already finished is no error.
func (r *run) interrupt(ctx context.Context) error {
	_, err := r.Client.Interrupt(ctx, r.answer.ExecutionID)
	if hasEnded(err) {
		return nil
	}
	return r.explain(err)
}

// hasEnded reports whether an interrupt was refused because the run had ended before it.
func hasEnded(err error) bool {
	refused, ok := errors.AsType[*contract.Error](err)
	return ok && refused.Code == contract.CodeConflict
}

// Interrupt interrupts a run, or cancels it if it is queued. It returns the run as it is then,
// and whether it had ended before. The error of a run that does not react is ErrStillRunning.
func Interrupt(ctx context.Context, vm VM, run contract.Execution) (now contract.Execution, ended bool, err error) {
	if run.Status.Finished() {
		return run, true, nil
	}
	now, err = vm.Client.Interrupt(ctx, run.ExecutionID)
	switch {
	case hasEnded(err):
		now, err = vm.Client.Execution(ctx, run.ExecutionID, 0, 0, 1)
		return now, true, err
	case err == nil && !now.Status.Finished():
		err = fmt.Errorf("%w: it has not reacted to the interrupt yet; interrupt it again, or run `colab-relay restart`, which ends it and deletes all variables", ErrStillRunning)
	}
	return now, false, err
}
