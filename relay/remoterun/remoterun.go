// Package remoterun runs code on a VM for a person who waits for it: it prints the output,
// passes input on, and interrupts the code when the person stops waiting.
//
// It must not leave code running that no person waits for, without saying so. Start reading
// at Run; printer.go prints the events, outcome.go makes the exit code.
package remoterun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
	"colabrelay/shared/contract"
)

const (
	// firstWait is how long the first request waits for the run, so that a quick run
	// needs only one request. The output of a longer one is printed from then on.
	firstWait = 500 * time.Millisecond
	// endWait is how long an interrupted run may take to end. An executor gives the code
	// 10 s.
	endWait = 15 * time.Second
	// submitGrace is how much longer a submit may take once the person interrupts it:
	// only a run whose id is known can be interrupted.
	submitGrace = 10 * time.Second
)

// ErrNoInput: the code asks for input, and stdin has none. The run is interrupted, because
// it would otherwise block the kernel for an hour.
var ErrNoInput = errors.New("the code asks for input, but stdin has none: run it in a terminal or pipe the answers")

// VM is where the code runs.
type VM struct {
	Runtime  string // its name
	Client   *client.Client
	LastSeen tools.LastSeen
}

// Code is what Run runs.
type Code struct {
	Text      string
	FromStdin bool // so stdin has no input for the code
	Timeout   time.Duration
}

// Console is what a person sees of the run.
type Console struct {
	terminal.Streams
	PictureDir string // pictures are saved below this folder
}

// run is one run of the code.
type run struct {
	VM
	Code
	endWait time.Duration

	instance string // of the VM that it was submitted to
	out      *printer
	answer   contract.Execution // to the submit; once it is printed, its id alone
	exec     contract.Execution // as last printed, without events
	blocked  bool               // it was last seen queued behind a run that waits for input
}

// Run runs code to its end and prints its output. If ctx ends or stdout breaks, it
// interrupts the code. The error of code that did not succeed is ErrPrinted, an ExitCode,
// or one that describes how the run ended.
func Run(ctx context.Context, vm VM, code Code, console Console) error {
	return (&run{VM: vm, Code: code, endWait: endWait, out: newPrinter(vm.Client, console)}).run(ctx)
}

func (r *run) run(ctx context.Context) error {
	if err := r.submit(ctx); err != nil {
		return err
	}
	defer r.out.close()
	if err := r.follow(ctx); err != nil {
		return err
	}
	return outcome(r.exec)
}

func (r *run) submit(ctx context.Context) error {
	submitting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(submitGrace, cancel) })
	defer stop()
	e, err := r.Client.Submit(submitting, contract.Submit{Code: r.Text, TimeoutSeconds: r.Timeout.Seconds(), WaitSeconds: firstWait.Seconds(), BehindInput: true})
	if err != nil {
		return r.explain(err)
	}
	r.instance = r.Client.InstanceID()
	r.answer = e
	if e.Status == contract.StatusQueued && e.QueuePosition > 0 {
		r.out.note("waiting for %s before this one", plain.Count(e.QueuePosition, "run"))
	}
	return nil
}

// follow prints the run until it has ended. If ctx ends or stdout breaks, it ends the run.
func (r *run) follow(ctx context.Context) error {
	for !r.exec.End && r.out.broken == nil {
		err := r.print(ctx)
		switch {
		case r.exec.End: // also when ctx has ended meanwhile
		case ctx.Err() != nil:
			return r.end(ctx)
		case errors.Is(err, ErrNoInput):
			if stopped := r.interrupt(ctx); stopped != nil {
				return errors.Join(err, stopped)
			}
			return fmt.Errorf("%w; the run on the VM was interrupted", err)
		case err != nil:
			return err
		}
	}
	switch {
	case r.out.broken == nil:
		return nil
	case r.exec.End:
		return fmt.Errorf("cannot write to stdout: %v", r.out.broken)
	}
	if err := r.end(ctx); err != nil {
		return fmt.Errorf("cannot write to stdout (%v): %w", r.out.broken, err)
	}
	return fmt.Errorf("cannot write to stdout (%v): the run ended as %s on the VM", r.out.broken, r.exec.Status)
}

// end interrupts the run and prints the rest of its output, for at most endWait or until
// a second signal.
func (r *run) end(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.endWait)
	defer cancel()
	waiting, stop := signal.NotifyContext(limited, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if r.out.broken == nil {
		r.out.note("interrupting the run on the VM")
	}
	err := r.interrupt(waiting)
	if err != nil {
		err = fmt.Errorf("interrupt it: %w", err)
	}
	for err == nil && !r.exec.End {
		err = r.read(waiting)
	}
	switch {
	case err == nil, isNewInstance(err):
		return err
	case waiting.Err() != nil && limited.Err() == nil:
		err = errors.New("a second signal ended the wait for its end")
	}
	return fmt.Errorf("the run %s may still be running on the VM: %w", r.answer.ExecutionID, err)
}

// print answers the input request that the code waits for, if any, and prints events
// until the next input request, the end of the run, or an error of stdout.
func (r *run) print(ctx context.Context) error {
	if err := r.input(ctx); err != nil {
		return err
	}
	return r.read(ctx)
}

// read prints events until the next input request, the end of the run, or an error of
// stdout.
func (r *run) read(ctx context.Context) error {
	alreadyBroken, answer := r.out.broken != nil, r.answer
	r.answer = contract.Execution{ExecutionID: answer.ExecutionID}
	following := ctx
	if !r.blocked {
		following = client.WithBehindInput(ctx)
	}
	_, err := client.Follow(following, r.Client, answer, client.FollowOptions{
		From: r.exec.NextOffset,
		Visit: func(e contract.Execution) bool {
			r.visit(ctx, e)
			return !r.noteBlocked(e) && (alreadyBroken || r.out.broken == nil)
		},
	})
	return r.explain(err)
}

// noteBlocked says once that the run is queued behind one that waits for input.
func (r *run) noteBlocked(e contract.Execution) (noted bool) {
	b := client.BehindInput(e)
	noted = b != nil && !r.blocked
	r.blocked = b != nil
	if noted {
		r.out.note("waiting for %s. %s", hint.Asking(b), hint.ForPrompt(b).Person)
	}
	return noted
}

// interrupt interrupts the run. A run that has already finished is no error.
func (r *run) interrupt(ctx context.Context) error {
	_, err := r.Client.Interrupt(ctx, r.answer.ExecutionID)
	if refused, ok := errors.AsType[*contract.Error](err); ok && refused.Code == contract.CodeConflict {
		return nil
	}
	return r.explain(err)
}

// visit prints the events of an answer.
func (r *run) visit(ctx context.Context, e contract.Execution) {
	events := e.Events
	e.Events = nil
	if e.KernelID != r.exec.KernelID {
		r.checkKernel(e.KernelID)
	}
	r.exec = e
	for _, ev := range events {
		r.out.event(ctx, e.ExecutionID, ev)
	}
}

// input passes a line from the person to code that waits for input.
func (r *run) input(ctx context.Context) error {
	if r.exec.Status != contract.StatusWaitingForInput {
		return nil
	}
	if r.FromStdin {
		return ErrNoInput
	}
	text, err := r.out.readInput(ctx)
	if err != nil {
		return err
	}
	_, err = r.Client.Input(ctx, r.answer.ExecutionID, contract.Input{Text: text, Offset: r.out.prompt, Password: r.out.password})
	return r.explain(err)
}
