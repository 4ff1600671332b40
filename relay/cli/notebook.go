package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

const (
	// notebookTime is how long a person's command follows a run without a break.
	notebookTime = 30 * 24 * time.Hour
	// notebookEndTime is how long an interrupted run may take to end. An executor gives the
	// cell 10 s.
	notebookEndTime = 20 * time.Second
)

// NotebookLoop follows the run of a notebook on this computer's behalf to its end.
type NotebookLoop struct {
	Run     *nbrun.Run
	VM      remoterun.VM
	View    *NotebookView
	Options nbrun.Options
	ending  bool // the run is being interrupted
}

// left is the error of a run that was left before its end because of cause.
func left(cause error) error {
	return fmt.Errorf("%w: %w; the same command comes back to it", runlist.ErrStillRunning, cause)
}

// ToEnd follows the run to its end. If ctx ends or stdout breaks, it interrupts the run.
func (l *NotebookLoop) ToEnd(ctx context.Context) (nbrun.Outcome, error) {
	for {
		o, err := l.advance(ctx)
		switch {
		case !o.Status.Finished() && (ctx.Err() != nil || l.View.cells.Broken() != nil):
			return l.interrupt(ctx)
		case err != nil:
			return o, l.lost(err)
		case o.Prompt != nil:
			err = l.View.cells.Answer(ctx, o.Execution.ExecutionID, *o.Prompt)
		case o.Behind != nil:
			l.noteBehind(o.Behind)
		case o.Status != nbrun.StatusRunning:
			return o, nil
		}
		if err != nil && ctx.Err() == nil {
			return o, l.lost(err)
		}
	}
}

// advance runs cells until something is to be decided here.
func (l *NotebookLoop) advance(ctx context.Context) (nbrun.Outcome, error) {
	advancing, cancel := context.WithCancel(ctx)
	defer cancel()
	l.Options.Until = time.Now().Add(notebookTime)
	l.Options.Progress = l.View.progress
	l.Options.Output = func(cell nbrun.CellRecord, executionID string, events []contract.Event) {
		l.View.output(ctx, cell, executionID, events)
		if l.View.cells.Broken() != nil && !l.ending {
			cancel()
		}
	}
	o, err := l.Run.Advance(advancing, l.VM.Client, l.Options)
	l.View.status.Clear()
	return o, err
}

// noteBehind says that another run has to be answered first. It says so once: a hostile executor
// could report another such run in each answer.
func (l *NotebookLoop) noteBehind(b *contract.Behind) {
	l.Options.BehindInput = true
	l.View.Note("waiting for %s. %s", hint.Asking(b), hint.ForPrompt(b).Person)
}

// interrupt interrupts the run and records how it ended, for at most notebookEndTime or until a
// second signal.
func (l *NotebookLoop) interrupt(ctx context.Context) (nbrun.Outcome, error) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), notebookEndTime)
	defer cancel()
	waiting, stop := signal.NotifyContext(limited, os.Interrupt, syscall.SIGTERM)
	defer stop()
	l.ending = true
	broken := l.View.cells.Broken()
	if broken == nil {
		l.View.Note("interrupting the run on the VM; Ctrl-C again leaves it running")
	}
	var o nbrun.Outcome
	err := l.Run.Interrupt(waiting, l.VM.Client)
	for first := true; err == nil && (first || o.Status == nbrun.StatusRunning); first = false {
		o, err = l.advance(waiting)
	}
	switch {
	case err == nil && o.Prompt != nil:
		err = left(errors.New("a cell asks for input again"))
	case waiting.Err() != nil && limited.Err() == nil:
		err = left(errors.New("stopped waiting"))
	case limited.Err() != nil:
		err = left(fmt.Errorf("the running cell did not end within %s of the interrupt", notebookEndTime))
	case err != nil:
		err = l.lost(err)
	}
	if broken != nil {
		err = errors.Join(fmt.Errorf("cannot write to stdout: %v", broken), err)
	}
	return o, err
}

// lost adds to the loss of the connection that cells may go on on the VM.
func (l *NotebookLoop) lost(err error) error {
	if _, broken := errors.AsType[*client.Error](err); broken && l.Run.Record().Run.Job != nil {
		return left(err)
	}
	return err
}

// NotebookUsage makes an error about the arguments of a run one of the command line, and names the
// flag instead of the tool's argument.
func NotebookUsage(err error) error {
	if wrong, ok := errors.AsType[*nbrun.ArgumentError](err); ok {
		flag := strings.ReplaceAll(strings.TrimSuffix(wrong.Name, "_seconds"), "_", "-")
		return Usagef("--%s: %s", flag, wrong.Problem)
	}
	if errors.Is(err, nbrun.ErrSpec) {
		return AsUsage(err)
	}
	return err
}

// NotebookView is what a person sees of the run of a notebook.
type NotebookView struct {
	std     terminal.Streams
	cells   *remoterun.Cells
	Outputs bool            // print what the cells print
	Quiet   bool            // show no progress
	status  terminal.Status // on stderr
	at      int             // index of the cell in the last line of progress
}

// NewNotebookView returns a view that shows progress and no outputs.
func NewNotebookView(std terminal.Streams, cells *remoterun.Cells) *NotebookView {
	return &NotebookView{std: std, cells: cells, status: terminal.Status{Out: std.Err}, at: -1}
}

// progress shows how far the run is: on a terminal in one line, unless that has the outputs, and
// elsewhere in a line for each cell.
func (v *NotebookView) progress(p nbrun.Progress) {
	line := fmt.Sprintf("%d of %d cells done; cell %d: %s", p.Done, p.Total, p.Index, p.Title)
	switch {
	case v.Quiet:
	case terminal.Is(v.std.Err) && !v.Outputs:
		if p.LastLine != "" {
			line += " | " + p.LastLine
		}
		v.status.Show(line)
	case p.Index != v.at:
		v.at = p.Index
		v.Note("%s", plain.Line(line))
	}
}

// output prints what a cell printed, or else only that it raised an exception.
func (v *NotebookView) output(ctx context.Context, cell nbrun.CellRecord, executionID string, events []contract.Event) {
	if v.Outputs {
		v.cells.Print(ctx, executionID, kernelOf(cell), events)
		return
	}
	for _, ev := range events {
		if ev.Type == contract.EventError {
			v.Note("cell %d raised %s", cell.Index, plain.Line(strings.TrimSuffix(fmt.Sprintf("%.100s: %.200s", ev.EName, ev.EValue), ": ")))
		}
	}
}

// kernelOf is the kernel of a cell's last attempt.
func kernelOf(cell nbrun.CellRecord) string {
	if at := cell.Last; at != nil {
		return at.KernelID
	}
	return ""
}

// Note prints a message of this program's own.
func (v *NotebookView) Note(format string, args ...any) {
	v.status.Clear()
	v.cells.Note(format, args...)
}
