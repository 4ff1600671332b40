package remoterun

import (
	"context"
	"io"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// promptPoll is how often Logs looks whether an input request has been answered: the VM
// answers a reader of a waiting run at once.
const promptPoll = 2 * time.Second

// LogOptions are what differs between readers of a run.
type LogOptions struct {
	Follow bool // until the run's end
	JSON   bool // print one event a line, as the contract has it, and nothing else
	// Tail is how many lines at the end of what there is are printed; nil means all. As JSON,
	// an event is a line.
	Tail *int
	// Fill returns events of the run with others in place of gaps that the VM has; nil leaves the gaps.
	Fill func(events []contract.Event) []contract.Event
}

// Logs prints the output of a run, which FindOnVM or FindNewest found, from its beginning or of
// its last lines. It answers no input() and never interrupts: if ctx ends, the run goes on. The
// outcome of the run is no error.
func Logs(ctx context.Context, vm VM, run contract.Execution, o LogOptions, console Console) error {
	l, id := newLog(vm.Client.Blobs, o, console), run.ExecutionID
	defer l.printer.finish()
	if o.Tail != nil {
		var err error
		if l.from, err = l.tailOnVM(ctx, vm, run); err != nil {
			return err
		}
	}
	last := contract.Execution{ExecutionID: id, NextOffset: l.from.offset}
	for first := true; ; first = false {
		e, err := client.Follow(ctx, vm.Client, contract.Execution{ExecutionID: id}, client.FollowOptions{
			From: last.NextOffset, Available: !o.Follow,
			Visit: func(e contract.Execution) bool { return l.print(ctx, id, e.Events) },
		})
		switch {
		case l.printer.broken != nil:
			return l.printer.broken
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case e.End || !o.Follow:
			l.end(e)
			return nil
		case first, e.NextOffset > last.NextOffset:
			l.note("the run waits for input: colab-relay input %s", id)
		}
		last = e
		select {
		case <-time.After(promptPoll):
		case <-ctx.Done():
			return nil
		}
	}
}

// Kept is a run that this computer has kept.
type Kept struct {
	contract.Execution // with its events
	Blobs              func(ctx context.Context, blob contract.Blob, w io.Writer) error
}

// PrintKept prints a run as Logs does.
func PrintKept(ctx context.Context, run Kept, o LogOptions, console Console) error {
	l := newLog(func(string) func(context.Context, contract.Blob, io.Writer) error { return run.Blobs }, o, console)
	defer l.printer.finish()
	l.kept = true
	switch {
	case o.Tail == nil:
	case *o.Tail == 0:
		run.Events = nil
	default:
		l.from = l.tailOf(run.Events)
	}
	l.print(ctx, run.ExecutionID, run.Events)
	l.end(run.Execution)
	return l.printer.broken
}

// log prints events for a reader.
type log struct {
	LogOptions
	printer *printer
	from    start // what comes before is not printed
	kept    bool  // it is from the history: the VM does not answer
}

func newLog(from blobs, o LogOptions, console Console) *log {
	if o.Fill == nil {
		o.Fill = func(events []contract.Event) []contract.Event { return events }
	}
	return &log{LogOptions: o, printer: newPrinter(from, console)}
}

// print prints events and reports whether stdout still takes them.
func (l *log) print(ctx context.Context, id string, events []contract.Event) bool {
	for _, ev := range l.Fill(events) {
		ev, wanted := l.cut(ev)
		switch {
		case !wanted:
		case l.JSON:
			l.json(ev)
		default:
			l.printer.event(ctx, id, ev)
		}
	}
	return l.printer.broken == nil
}

func (l *log) json(ev contract.Event) {
	if l.printer.broken != nil {
		return
	}
	text, err := plain.JSON(ev, "")
	if err == nil {
		_, err = l.printer.std.Out.Write(text)
	}
	l.printer.broken = err
}

// end says how a run ended, unless its output shows it.
func (l *log) end(e contract.Execution) {
	switch {
	case l.kept && !e.Status.Finished():
		l.note("the run was %s when the VM last answered", plain.Line(string(e.Status)))
	case e.Status == contract.StatusWaitingForInput:
		l.note("the run waits for input: colab-relay input %s", e.ExecutionID)
	case !e.Status.Finished():
		l.note("the run is %s; `colab-relay logs -f %s` prints what follows", plain.Line(string(e.Status)), e.ExecutionID)
	case e.Status != contract.StatusSucceeded && e.Status != contract.StatusFailed:
		l.note("%s", outcome(e))
	case !l.JSON:
		l.printer.noteReason(e)
	}
}

func (l *log) note(format string, args ...any) {
	if !l.JSON {
		l.printer.note(format, args...)
	}
}
