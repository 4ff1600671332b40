package remoterun

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/output"
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

// Windows in which a log is searched for the beginning of its last lines, from the end on, in
// events. The first is small, because an event may have contract.MaxStreamEvent of text. Memory
// has one answer of the VM, and the pieces of one window.
const (
	firstWindow = 64
	maxWindow   = 4096
)

// start is where the last lines of a log begin.
type start struct {
	offset int64 // of the first event to print
	skip   int   // lines at the beginning of that event that are not wanted
}

// piece is what an event is to a tail.
type piece struct {
	offset int64
	lines  int  // that end in it
	open   bool // its text does not end with a line break
	block  bool // it begins on a line of its own
	empty  bool // it prints nothing
}

// pieceOf measures an event as the printer prints it.
func pieceOf(ev contract.Event) piece {
	text := textOf(ev)
	p := piece{offset: ev.Offset, lines: strings.Count(text, "\n"), open: text != "" && !strings.HasSuffix(text, "\n")}
	// A prompt ends its line, and that before it if it has no text.
	p.block = ev.Type != contract.EventStream && (ev.Type != contract.EventInputRequest || text == "")
	p.empty = text == "" && ev.Type != contract.EventInputRequest
	if p.open && ev.Type != contract.EventStream {
		p.lines, p.open = p.lines+1, false
	}
	if ev.Cut != "" && ev.Type != contract.EventGap { // a note comes first
		p.lines, p.block, p.empty = p.lines+1, true, false
	}
	return p
}

// textOf returns the text of an event as the printer prints it, or one line in place of a note, or of
// a blob: it is not fetched to count.
func textOf(ev contract.Event) string {
	raw, isText := ev.Data["text/plain"]
	_, isBlob := output.BlobOf(raw)
	switch {
	case ev.Type == contract.EventStream:
		return ev.Text
	case ev.Type == contract.EventInputRequest:
		return promptText(ev)
	case ev.Type == contract.EventError:
		return strings.Join(ev.Traceback, "\n")
	case ev.Type == contract.EventGap, pictureOf(ev) != "", isBlob:
		return "note\n"
	case isText:
		return output.Text(raw)
	}
	return ""
}

// tail counts the lines at the end of a log.
type tail struct {
	want   int  // lines, or events
	events bool // as JSON, each event is a line
	seen   int
	fresh  bool // what comes after the next piece begins on a new line
}

func (l *log) newTail() *tail { return &tail{want: *l.Tail, events: l.JSON, fresh: true} }

// add counts the piece before those that were counted, and reports whether the wanted lines
// begin in it.
func (t *tail) add(p piece) (at start, found bool) {
	lines := p.lines
	if p.open && t.fresh {
		lines++
	}
	if !p.empty {
		t.fresh = p.block
	}
	if t.events {
		lines = 1
	}
	t.seen += lines
	return start{p.offset, t.seen - t.want}, t.seen > t.want
}

// startOf returns where the last lines of some pieces of a log begin.
func (t *tail) startOf(pieces []piece) (at start, found bool) {
	for _, p := range slices.Backward(pieces) {
		if at, found = t.add(p); found {
			return at, true
		}
	}
	return start{}, false
}

// tailOnVM returns where the last lines of the run's log begin on the VM.
func (l *log) tailOnVM(ctx context.Context, vm VM, run contract.Execution) (start, error) {
	end := run.NextOffset
	read := func(from int64, visit func(contract.Execution) bool) error {
		_, err := client.Follow(ctx, vm.Client, contract.Execution{ExecutionID: run.ExecutionID}, client.FollowOptions{
			From: from, Available: true, MaxBytes: contract.MaxReadBytes, Visit: visit,
		})
		return err
	}
	if len(run.Events) > 0 && !run.End { // it is too old for the VM's list, which says where its log ends
		if err := read(end, func(e contract.Execution) bool { end = e.NextOffset; return true }); err != nil {
			return start{}, err
		}
	}
	if *l.Tail == 0 {
		return start{offset: end}, nil
	}
	t := l.newTail()
	for to, window := end, int64(firstWindow); to > 0; window = min(4*window, maxWindow) {
		from := max(0, to-window)
		var pieces []piece
		err := read(from, func(e contract.Execution) bool {
			for _, ev := range l.Fill(e.Events) {
				if ev.Offset < to {
					pieces = append(pieces, pieceOf(ev))
				}
			}
			return e.NextOffset < to
		})
		if err != nil {
			return start{}, err
		}
		if at, found := t.startOf(pieces); found {
			return at, nil
		}
		to = from
	}
	return start{}, nil
}

// tailOf returns where the last lines of a log begin that is in memory.
func (l *log) tailOf(events []contract.Event) start {
	var pieces []piece
	for _, ev := range events {
		pieces = append(pieces, pieceOf(ev))
	}
	at, _ := l.newTail().startOf(pieces)
	return at
}

// cut returns an event without what comes before the last lines. ok is false if nothing is left.
func (l *log) cut(ev contract.Event) (left contract.Event, ok bool) {
	skip := l.from.skip
	switch {
	case ev.Offset < l.from.offset:
		return ev, false
	case ev.Offset > l.from.offset || skip == 0:
		return ev, true
	case l.JSON || ev.Type == contract.EventGap:
		return ev, false
	}
	if ev.Cut != "" {
		ev.Cut = ""
		skip--
	}
	if skip == 0 {
		return ev, textOf(ev) != ""
	}
	rest, ok := afterLines(textOf(ev), skip)
	switch ev.Type {
	case contract.EventStream:
		ev.Text = rest
	case contract.EventInputRequest:
		ev.Prompt = rest
	case contract.EventError:
		ev.Traceback, ev.Data = []string{rest}, nil // what is left of it
	default:
		text, err := json.Marshal(rest)
		ev.Data, ok = map[string]json.RawMessage{"text/plain": text}, ok && err == nil
	}
	return ev, ok
}

// afterLines returns text without its first lines, and whether anything is left.
func afterLines(text string, skip int) (rest string, ok bool) {
	for range skip {
		_, after, found := strings.Cut(text, "\n")
		if !found {
			return "", false
		}
		text = after
	}
	return text, text != ""
}
