package main

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
	"colabrelay/relay/nbrun"
	"colabrelay/relay/remoterun"
	"colabrelay/shared/contract"
)

const (
	// notebookTime is how long a person's command follows a run without a break.
	notebookTime = 30 * 24 * time.Hour
	// notebookEndTime is how long an interrupted run may take to end. An executor gives the
	// cell 10 s.
	notebookEndTime = 20 * time.Second
)

// notebookLoop follows the run of a notebook on this computer's behalf to its end.
type notebookLoop struct {
	run    *nbrun.Run
	vm     remoterun.VM
	view   *notebookView
	opts   nbrun.Options
	ending bool // the run is being interrupted
}

// leftNotebook is the error of a run of a notebook that was left before its end.
type leftNotebook struct{ cause error }

func (e *leftNotebook) Error() string {
	return fmt.Sprintf("cells that were submitted may still run on the VM: %v; the same command comes back to them", e.cause)
}

func (e *leftNotebook) Unwrap() []error { return []error{remoterun.ErrStillRunning, e.cause} }

// toEnd follows the run to its end. If ctx ends or stdout breaks, it interrupts the run.
func (l *notebookLoop) toEnd(ctx context.Context) (nbrun.Outcome, error) {
	for {
		o, err := l.advance(ctx)
		switch {
		case !o.Status.Finished() && (ctx.Err() != nil || l.view.cells.Broken() != nil):
			return l.interrupt(ctx)
		case err != nil:
			return o, l.lost(err)
		case o.Prompt != nil:
			err = l.answer(ctx, *o.Prompt)
		case o.Behind != nil:
			l.noteBehind(o.Behind)
		case o.Status != nbrun.StatusRunning:
			return o, nil
		}
		switch {
		case errors.Is(err, remoterun.ErrNoInput):
			o, stopped := l.interrupt(ctx)
			return o, errors.Join(fmt.Errorf("%w; the run on the VM was interrupted", err), stopped)
		case err != nil && ctx.Err() == nil:
			return o, l.lost(err)
		}
	}
}

// advance runs cells until something is to be decided here.
func (l *notebookLoop) advance(ctx context.Context) (nbrun.Outcome, error) {
	advancing, cancel := context.WithCancel(ctx)
	defer cancel()
	l.opts.Until = time.Now().Add(notebookTime)
	l.opts.Progress = l.view.progress
	l.opts.Output = func(cell nbrun.CellRecord, executionID string, events []contract.Event) {
		l.view.output(ctx, cell, executionID, events)
		if l.view.cells.Broken() != nil && !l.ending {
			cancel()
		}
	}
	o, err := l.run.Advance(advancing, l.vm.Client, l.opts)
	l.view.status.Clear()
	return o, err
}

// answer passes input from the person to the cell that waits for it.
func (l *notebookLoop) answer(ctx context.Context, prompt nbrun.Prompt) error {
	return l.view.cells.Answer(ctx, prompt.ExecutionID, contract.Event{
		Type: contract.EventInputRequest, Prompt: prompt.Text, Password: prompt.Password, Offset: prompt.Offset,
	})
}

// noteBehind says that another run has to be answered first. It says so once: a hostile executor
// could report another such run in each answer.
func (l *notebookLoop) noteBehind(b *contract.Behind) {
	l.opts.BehindInput = true
	l.view.note("waiting for %s. %s", hint.Asking(b), hint.ForPrompt(b).Person)
}

// interrupt interrupts the run and records how it ended, for at most notebookEndTime or until a
// second signal.
func (l *notebookLoop) interrupt(ctx context.Context) (nbrun.Outcome, error) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), notebookEndTime)
	defer cancel()
	waiting, stop := signal.NotifyContext(limited, os.Interrupt, syscall.SIGTERM)
	defer stop()
	l.ending = true
	broken := l.view.cells.Broken()
	if broken == nil {
		l.view.note("interrupting the run on the VM; Ctrl-C again leaves it running")
	}
	var o nbrun.Outcome
	err := l.run.Interrupt(waiting, l.vm.Client)
	for first := true; err == nil && (first || o.Status == nbrun.StatusRunning); first = false {
		o, err = l.advance(waiting)
	}
	switch {
	case err == nil && o.Prompt != nil:
		err = &leftNotebook{errors.New("a cell asks for input again")}
	case waiting.Err() != nil && limited.Err() == nil:
		err = &leftNotebook{errors.New("a second signal ended the wait for its end")}
	case limited.Err() != nil:
		err = &leftNotebook{fmt.Errorf("the running cell did not end within %s of the interrupt", notebookEndTime)}
	case err != nil:
		err = l.lost(err)
	}
	if broken != nil {
		err = errors.Join(fmt.Errorf("cannot write to stdout: %v", broken), err)
	}
	return o, err
}

// lost adds to the loss of the connection that cells may go on on the VM.
func (l *notebookLoop) lost(err error) error {
	if _, broken := errors.AsType[*client.Error](err); broken && len(l.run.Record().Run.Flights) > 0 {
		return &leftNotebook{err}
	}
	return err
}
