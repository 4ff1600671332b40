package remoterun

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

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

// pieceOf measures an event as the printer prints it. A text of an object that is a blob counts
// as one line: it is not fetched to count.
func pieceOf(ev contract.Event) piece {
	p := piece{offset: ev.Offset, block: true}
	text := "note\n"
	switch isPicture := pictureOf(ev) != ""; {
	case ev.Type == contract.EventStream:
		text, p.block = ev.Text, false
	case ev.Type == contract.EventInputRequest: // it ends its line, and that before it if it has no text
		text = promptText(ev)
		p.block = text == ""
	case ev.Type == contract.EventError:
		text = strings.Join(ev.Traceback, "\n")
	case ev.Type == contract.EventGap, isPicture:
	default:
		text = objectText(ev)
	}
	p.lines, p.open = strings.Count(text, "\n"), text != "" && !strings.HasSuffix(text, "\n")
	p.empty = text == "" && ev.Type != contract.EventInputRequest
	if p.open && ev.Type != contract.EventStream {
		p.lines, p.open = p.lines+1, false
	}
	if ev.Cut != "" && ev.Type != contract.EventGap { // a note comes first
		p.lines, p.block, p.empty = p.lines+1, true, false
	}
	return p
}

// objectText returns the text of an object that is no picture; something without line breaks
// for a blob.
func objectText(ev contract.Event) string {
	raw, ok := ev.Data["text/plain"]
	if !ok {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return "a blob"
	}
	return text
}

// tail counts the lines at the end of a log.
type tail struct {
	want   int  // lines, or events
	events bool // as JSON, each event is a line
	seen   int
	fresh  bool // what comes after the next piece begins on a new line
}

func newTail(want int, events bool) *tail { return &tail{want: want, events: events, fresh: true} }

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
	t := newTail(*l.Tail, l.JSON)
	for to, window := end, int64(firstWindow); to > 0; window = min(4*window, maxWindow) {
		from := max(0, to-window)
		var pieces []piece
		err := read(from, func(e contract.Execution) bool {
			for _, ev := range l.filled(e.Events) {
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
	at, _ := newTail(*l.Tail, l.JSON).startOf(pieces)
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
	switch isPicture := pictureOf(ev) != ""; {
	case ev.Type == contract.EventStream:
		ev.Text, ok = afterLines(ev.Text, skip)
	case ev.Type == contract.EventInputRequest:
		ev.Prompt, ok = afterLines(promptText(ev), skip)
	case ev.Type == contract.EventError:
		var rest string
		rest, ok = afterLines(strings.Join(ev.Traceback, "\n"), skip)
		ev.Traceback, ev.Data = []string{rest}, nil // what is left of it
	case isPicture:
		ok = skip == 0
	default:
		var rest string
		rest, ok = afterLines(objectText(ev), skip)
		if ok && skip > 0 {
			text, err := json.Marshal(rest)
			ev.Data = maps.Clone(ev.Data)
			ev.Data["text/plain"] = text
			ok = err == nil
		}
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
