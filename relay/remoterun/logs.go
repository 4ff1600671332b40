package remoterun

import (
	"bytes"
	"context"
	"io"
	"math"
	"slices"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/history"
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

// Logs prints the output of a run, which package runlist found, from its beginning or of
// its last lines. It answers no input() and never interrupts: if ctx ends, the run goes on. The
// outcome of the run is no error.
func Logs(ctx context.Context, vm VM, run contract.Execution, o LogOptions, console Console) error {
	l, id := &log{LogOptions: o, printer: newPrinter(vm.Client.Blobs, console)}, run.ExecutionID
	defer l.printer.finish()
	last := contract.Execution{ExecutionID: id}
	if o.Tail != nil {
		var err error
		if last.NextOffset, err = l.tailOnVM(ctx, vm, run); err != nil {
			return err
		}
	}
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

// PrintKept prints a run of the history as Logs does.
func PrintKept(ctx context.Context, run history.Whole, o LogOptions, console Console) error {
	blobs := func(string) func(context.Context, contract.Blob, io.Writer) error { return run.Fetch }
	l := &log{LogOptions: o, printer: newPrinter(blobs, console), kept: true}
	defer l.printer.finish()
	if o.Tail != nil {
		if _, err := l.leave(func(counting *log) error { counting.print(ctx, run.ExecutionID, run.Events); return nil }); err != nil {
			return err
		}
	}
	l.print(ctx, run.ExecutionID, run.Events)
	l.end(run.Execution)
	return l.printer.broken
}

// log prints events for a reader.
type log struct {
	LogOptions
	printer *printer
	kept    bool // it is from the history: the VM does not answer
}

// print prints events and reports whether stdout still takes them.
func (l *log) print(ctx context.Context, id string, events []contract.Event) bool {
	if l.Fill != nil {
		events = l.Fill(events)
	}
	for _, ev := range events {
		if l.JSON {
			l.json(ev)
		} else {
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
	l.printer.finish()
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

// firstWindow is how many events at the end of a log are looked at first for its last lines. Each has
// up to contract.MaxStreamEvent of text.
const firstWindow = 64

// tailOnVM returns the offset of the first event to print, of whose lines the first are left out, so
// that the last lines of the run's log on the VM are left.
func (l *log) tailOnVM(ctx context.Context, vm VM, run contract.Execution) (from int64, err error) {
	end, window := run.NextOffset, int64(firstWindow)
	if run.Events != nil { // it is too old for the VM's list, which says where its log ends
		end, window = math.MaxInt64, math.MaxInt64
	}
	if *l.Tail == 0 && window == firstWindow {
		return end, nil
	}
	for ; ; window *= 4 {
		from = max(0, end-window)
		enough, err := l.leave(func(counting *log) error {
			_, err := client.Follow(ctx, vm.Client, contract.Execution{ExecutionID: run.ExecutionID}, client.FollowOptions{
				From: from, Available: true, MaxBytes: contract.MaxReadBytes, Visit: func(e contract.Execution) bool {
					counting.print(ctx, run.ExecutionID, slices.DeleteFunc(slices.Clone(e.Events), func(ev contract.Event) bool { return ev.Offset >= end }))
					return e.NextOffset < end
				},
			})
			return err
		})
		if err != nil || enough || from == 0 {
			return from, err
		}
	}
}

// leave leaves the last lines of what printAll prints, and reports whether it prints more.
func (l *log) leave(printAll func(counting *log) error) (more bool, err error) {
	counting := *l
	counting.printer = newPrinter(l.printer.blobs, Console{Streams: l.printer.std})
	counted := counting.printer.skipLines(math.MaxInt)
	err = printAll(&counting)
	counting.printer.finish()
	more = math.MaxInt-counted.left > *l.Tail
	if more {
		l.printer.skipLines(math.MaxInt - counted.left - *l.Tail)
	}
	return more, err
}

// skipped is how many lines of a printer are still left out.
type skipped struct{ left int }

// skipLines leaves the first lines of both streams out.
func (p *printer) skipLines(lines int) *skipped {
	p.skipped = &skipped{lines}
	p.std.Out, p.std.Err = skipping{p.skipped, p.std.Out}, skipping{p.skipped, p.std.Err}
	return p.skipped
}

// skipping is a stream of which the first lines are left out.
type skipping struct {
	*skipped
	stream io.Writer
}

func (s skipping) Write(b []byte) (int, error) {
	whole := len(b)
	for s.left > 0 && len(b) > 0 {
		_, rest, ended := bytes.Cut(b, []byte("\n"))
		if b = rest; ended {
			s.left--
		}
	}
	if len(b) > 0 {
		if _, err := s.stream.Write(b); err != nil {
			return 0, err
		}
	}
	return whole, nil
}
