// Package render turns the events of an execution into what a model reads: short text with
// progress bars in their final state, the head and tail of long output, a traceback
// without colours, and pictures of a size that a model accepts. It saves what does not fit
// in files and names them.
//
// It knows neither MCP nor HTTP: the caller passes a function that fetches blobs. Its
// memory is bounded whatever the code printed. Start reading at Collector.
package render

import (
	"cmp"
	"fmt"
	"strings"

	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// Bounds of a View.
const (
	defaultLimit = 5_000 // characters of all texts together
	headPart     = 0.4   // of the limit, for the beginning of both streams
	leastRunes   = 100   // what a result, traceback or output gets at least
	leastPage    = 4     // a page's other texts get at least the limit by this number
	textRunes    = 500   // the text of one display output
	maxOutputs   = 100   // the newest display outputs are kept
	maxNotes     = 12
)

// Options of a Collector.
type Options struct {
	// Dir is the folder for pictures and full texts, created with the first of them. If it
	// is empty, nothing is saved.
	Dir string
	// From is the offset of the first event to be added.
	From int64
	// Instance is the executor's instance_id. Saved text of another instance is replaced.
	Instance string
	// New means that no call has read the execution before, so none has saved anything.
	New bool
	// Page makes the view one page of complete events instead of head and tail: add events
	// while there is Room. A page exceeds the limit if its first event alone does.
	Page bool
	// Unpaged says that no call can page through the execution, so no text names one.
	Unpaged bool
	// Holding, unless nil, takes the turn of calls whose answer has pictures before the first one
	// is read. The caller ends it when the answer was sent.
	Holding *memory.Holding
	// Limit is how many characters (runes) all texts of the view have together, not counting
	// markers; 0 means 5,000. If some are longer, each gets a fair share.
	Limit int
}

// Collector collects the events of one execution, in order, from Options.From on. It is not
// safe for concurrent use.
type Collector struct {
	opt            Options
	stdout, stderr stream
	last           *stream // the one written to last
	newest         int64   // offset of the newest event added
	next           int64   // offset after it
	headEnd        int64   // offset of the first event that the head does not contain completely
	complete       bool
	displays       displays
	errors         int
	errorText      string          // the last traceback
	errorWhole     display         // all of it, if it is shortened in its event; else without data
	earlierErrors  strings.Builder // the tracebacks before it, which the code displayed, up to maxText
	errorsLeftOut  int
	ename, evalue  string
	prompt         *Prompt
	cuts           int // events that the executor shortened
	cutNotes       []string
	widgetLine     string // the last line of a widget's text, if that is newer than what was printed
	clearNext      bool   // clear_output with wait: clear before the next output

	ended   bool   // the events are all that there will ever be
	saved   *saved // as last read; nil if nothing was saved
	unsaved unsaved
}

// New returns an empty Collector. The caller must call View or Close in the end.
func New(opt Options) *Collector {
	if opt.Limit == 0 {
		opt.Limit = defaultLimit
	}
	c := &Collector{opt: opt, next: opt.From, unsaved: unsaved{from: opt.From}}
	if !opt.New {
		c.saved = loadSaved(opt.Dir, opt.Instance)
	}
	if c.saved != nil {
		c.unsaved.from = c.saved.To
	}
	// A page omits nothing. If the events between are missing, the saved text cannot be extended.
	c.unsaved.off = opt.Dir == "" || opt.Page || c.unsaved.from < opt.From || c.saved != nil && c.saved.Ended
	c.stdout.start(opt.Limit)
	c.stderr.start(opt.Limit)
	c.last = &c.stdout
	return c
}

// End says that the execution has ended, and has no events after those added and skipped. The
// text that is saved then is complete, and no later answer adds to it.
func (c *Collector) End() { c.ended = true }

// Close frees memory. It may be called again and after View.
func (c *Collector) Close() {
	c.displays.free()
	c.unsaved.text = nil
}

// Full reports whether a page is complete.
func (c *Collector) Full() bool { return c.opt.Page && c.complete }

// Room reports whether the next event belongs to this page.
func (c *Collector) Room(ev contract.Event) bool {
	if !c.opt.Page {
		return true
	}
	shown := c.shown()
	return !c.complete && (shown == 0 || shown+runes(Plain(ev.Text)) <= c.opt.Limit)
}

// shown returns how many characters of the streams a view would have.
func (c *Collector) shown() int { return c.stdout.shown() + c.stderr.shown() }

// Next returns the offset after the newest event.
func (c *Collector) Next() int64 { return c.next }

// Prompt returns what the code asked last; nil if it asked nothing. It may have been answered:
// only the run's status says whether it waits. Events after the request do not say that, because
// what the code printed before it may arrive later.
func (c *Collector) Prompt() *Prompt { return c.prompt }

// Newest returns the newest line of text, for a progress message.
func (c *Collector) Newest() string { return cmp.Or(c.widgetLine, c.last.folder.newest()) }

// Add adds the next event. It ignores unknown types, because a newer executor may send them.
func (c *Collector) Add(ev contract.Event) {
	c.newest, c.next = ev.Offset, ev.Offset+1
	if output.OfRelay(ev) {
		return
	}
	c.noteCut(ev)
	switch ev.Type {
	case contract.EventClearOutput, contract.EventInputRequest, contract.EventWidgetView, contract.EventWidgetState:
	default:
		if c.clearNext {
			c.clear()
		}
	}
	switch ev.Type {
	case contract.EventStream:
		c.stream(ev)
	case contract.EventDisplayData, contract.EventExecuteResult:
		c.displays.add(ev)
	case contract.EventUpdateDisplayData:
		c.displays.update(ev)
	case contract.EventWidgetView:
		c.displays.update(ev)
		lines := strings.Split(strings.TrimSpace(Plain(output.Text(ev.Data["text/plain"]))), "\n")
		c.widgetLine = lines[len(lines)-1]
	case contract.EventError:
		switch {
		case c.errors == 0:
		case c.earlierErrors.Len()+len(c.errorText) > maxText:
			c.errorsLeftOut++
		default:
			c.earlierErrors.WriteString(c.errorText + "\n\n")
		}
		c.errors++
		c.ename, c.evalue = ev.EName, ev.EValue
		c.errorWhole = display{offset: ev.Offset, typ: ev.Type, data: ev.Data}
		c.errorText = strings.Join(ev.Traceback, "\n")
	case contract.EventInputRequest:
		c.prompt = &Prompt{Text: ev.Prompt, Offset: ev.Offset, Password: ev.Password}
	case contract.EventClearOutput:
		if c.clearNext = ev.Wait; !ev.Wait {
			c.clear()
		}
	case contract.EventGap:
		c.next = ev.Offset + max(ev.Events, 1)
		c.gap(ev)
	}
	c.freeze()
	if c.unsaved.bytes > maxUnsaved {
		_ = c.extend() // which keeps its error
	}
}

// maxCuts bounds the notes on shortened events: a loop may produce thousands.
const maxCuts = 5

// noteCut records what the executor omitted from an event.
func (c *Collector) noteCut(ev contract.Event) {
	if ev.Cut == "" {
		return
	}
	if c.cuts++; c.cuts <= maxCuts {
		c.cutNotes = append(c.cutNotes, fmt.Sprintf("omitted from the output at offset %d: %s", ev.Offset, plain.Quote(clipLine(ev.Cut, 2*leastRunes))))
	}
}

// viewCuts adds the notes on shortened events.
func (c *Collector) viewCuts(v *View) {
	v.Notes = append(v.Notes, c.cutNotes...)
	if more := c.cuts - len(c.cutNotes); more > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("further outputs with omissions: %d", more))
	}
}

func (c *Collector) stream(ev contract.Event) {
	c.widgetLine = ""
	c.last = &c.stdout
	if ev.Name == contract.Stderr {
		c.last = &c.stderr
	}
	c.write(ev.Text)
}

// write adds text of the newest event to the stream that was written to last.
func (c *Collector) write(text string) {
	name := contract.Stdout
	if c.last == &c.stderr {
		name = contract.Stderr
	}
	c.unsaved.add(name, text, c.newest)
	c.last.folder.write(text)
}

// gap marks output that the executor's log does not contain.
func (c *Collector) gap(ev contract.Event) {
	line := fmt.Sprintf("[… %d bytes are not in the log on the VM …]\n", ev.Bytes)
	if ev.Bytes == 0 {
		line = "[… output is missing here: the VM's disk was full or its log was damaged …]\n"
	}
	if c.last.folder.column() > 0 {
		line = "\n" + line
	}
	c.write(line)
}

func (c *Collector) clear() {
	c.clearNext = false
	c.stdout.start(c.opt.Limit)
	c.stderr.start(c.opt.Limit)
	c.displays.free()
	c.complete = false
}

// freeze completes the head once it is long enough. If the newest event does not fit into
// it completely, the next page starts with this event.
func (c *Collector) freeze() {
	if c.complete {
		return
	}
	if c.opt.Page {
		c.complete = c.shown() >= c.opt.Limit || c.displays.pageFull()
		return
	}
	most := int(headPart * float64(c.opt.Limit))
	if c.shown() < most && !c.displays.pageFull() {
		return
	}
	c.complete, c.headEnd = true, c.next
	other := &c.stdout
	if c.last == other {
		other = &c.stderr
	}
	room := max(0, most-other.shown())
	other.freeze(other.shown())
	if cut := c.last.freeze(room); cut {
		c.headEnd = c.newest
	}
}
