package remoterun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/runlist"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
)

// leftRunning is the error of a run that was left before its end. The cause may be a lost
// connection, which is then a *client.Error.
type leftRunning struct {
	id    string
	cause error
}

func (e *leftRunning) Error() string {
	return fmt.Sprintf("the run %s may still be running on the VM: %v; to come back: colab-relay attach %s", e.id, e.cause, e.id)
}

func (e *leftRunning) Unwrap() []error { return []error{runlist.ErrStillRunning, e.cause} }

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
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
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
	case err == nil, contract.CodeOf(err) == contract.CodeNewInstance:
		return err
	case limited.Err() != nil && interrupted:
		return r.leave(fmt.Errorf("it did not end within %s of the interrupt", endWait))
	case waiting.Err() != nil && limited.Err() == nil:
		return r.leave(errors.New("stopped waiting"))
	}
	return r.leave(err)
}

// interrupt interrupts the run. A run that has already finished is no error.
func (r *run) interrupt(ctx context.Context) error {
	_, err := r.Client.Interrupt(ctx, r.answer.ExecutionID)
	if contract.CodeOf(err) == contract.CodeConflict { // it had ended
		return nil
	}
	return r.explain(err)
}

// checkKernel warns if the kernel is not the one that people on this computer last used,
// and records it. id is empty as long as the run has no kernel.
func (r *run) checkKernel(id string) {
	if id == "" || r.LastSeen.Load == nil {
		return
	}
	before := r.LastSeen.Load(r.Runtime)
	now := before.Updated(r.instance, id)
	// Recorded even if unchanged: an agent may have recorded another kernel as the newest.
	r.LastSeen.Save(r.Runtime, now)
	if loss := before.Loss(now); loss != "" {
		r.out.note("this is %s", loss)
	}
}

// explain replaces an error that means that a new VM has taken over the address.
func (r *run) explain(err error) error {
	code := contract.CodeOf(err)
	unknown := code == contract.CodeNotFound && r.instance != "" && r.Client.InstanceID() != r.instance
	if !unknown && code != contract.CodeNewInstance {
		return err
	}
	return &contract.Error{
		Code:    contract.CodeNewInstance,
		Message: "a new VM has taken over this address; the code was not run again there, and the variables of the old VM are gone",
		Hint:    "run the setup code again, then this command",
	}
}

// ErrPrinted: the code raised an exception, and its traceback has been printed.
var ErrPrinted = errors.New("the code raised an exception")

// NoModuleError is an ErrPrinted of code that imported a module which the VM does not have.
type NoModuleError struct {
	Module string // with dots; outside text
}

func (e *NoModuleError) Error() string { return fmt.Sprintf("the VM has no module %q", e.Module) }

// Unwrap returns ErrPrinted.
func (e *NoModuleError) Unwrap() error { return ErrPrinted }

// noModule is what Python says of a module that it did not find.
var noModule = lazy.Regexp(`^No module named '([^']{1,200})'`)

// ExitCode is the outcome of code that called sys.exit with a number from 1 to 255.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// ended returns the outcome of the run, and prints what its output does not show.
func (r *run) ended() error {
	r.out.noteReason(r.exec)
	return outcome(r.exec)
}

// noteReason says what the executor added to the status of a run that ended by itself, such as
// that a full disk cost output. The error of any other run has it.
func (p *printer) noteReason(e contract.Execution) {
	if (e.Status == contract.StatusSucceeded || e.Status == contract.StatusFailed) && e.Reason != "" {
		p.note("%s", plain.Line(e.Reason))
	}
}

// outcome returns the error of a run that did not succeed.
func outcome(e contract.Execution) error {
	switch {
	case e.Status == contract.StatusSucceeded:
		return nil
	case e.Status == contract.StatusFailed, e.Status == contract.StatusInterrupted && e.Error != nil && e.Error.EName == "SystemExit":
		return exception(e.Error) // also of code that was interrupted and then chose its exit code
	}
	return &endedError{e.Status, plain.Line(e.Reason)}
}

// endedError is the outcome of a run that ended badly, except for exceptions.
type endedError struct {
	status contract.Status
	reason string
}

func (e *endedError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("the run ended as %s: %s", e.status, e.reason), ": ")
}

// Outcome returns the status, from which package hint derives the next step.
func (e *endedError) Outcome() contract.Status { return e.status }

// exception returns the outcome of code that raised an exception. sys.exit gives the same
// exit code as if the code had run on this computer: a number counts modulo 256, and a text,
// which is the traceback, means 1.
func exception(e *contract.ExecutionError) error {
	if e != nil && e.EName == "ModuleNotFoundError" {
		if found := noModule().FindStringSubmatch(e.EValue); found != nil {
			return &NoModuleError{found[1]}
		}
	}
	if e == nil || e.EName != "SystemExit" || len(e.Traceback) > 0 {
		return ErrPrinted
	}
	switch e.EValue {
	case "", "None", "False":
		return nil
	case "True":
		return ExitCode(1)
	}
	code, err := strconv.ParseInt(e.EValue, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange): // Python cannot pass it on, and exits with 255
		return ExitCode(255)
	case err != nil:
		return ErrPrinted
	case code&0xff == 0:
		return nil
	}
	return ExitCode(code & 0xff)
}
