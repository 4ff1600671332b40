package output

import (
	"context"
	"fmt"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
	"colabrelay/shared/widgets"
)

// Cell has the outputs of one execution.
type Cell struct {
	collector *Collector
	key       string
	forgotten bool
	touched   bool // it is among those that the collector names as changed

	entries
	line   line // the end of the last entry, if that is a stream
	clear  bool // before the next output
	noRoom bool // for the payloads of the events that are added
	spill  spill
	fresh  []*content // whose payloads are to be fetched
}

// entry is one output.
type entry struct {
	Output
	cell    *Cell
	text    []byte // Stream: all but the cell's line
	content *content
	size    int64 // of what counts for Limits.Payloads
	id      string
}

// Add adds events, in the order of their log, and fetches the payloads that are to be shown. One
// that cannot be had is requested again by the next Add, also by one without events, three times
// in all.
func (c *Cell) Add(ctx context.Context, events []contract.Event, fetch Fetch) {
	done := c.takeRoom(events)
	defer done()
	c.collector.mu.Lock()
	for i := range events {
		c.add(&events[i])
	}
	c.endAdd()
	c.collector.mu.Unlock()
	if c.collector.hold(ctx) != nil {
		return // what is missing is requested by a later Add
	}
	c.fetchAll(ctx, fetch)
}

// takeRoom takes room in the budget of displays for the payloads in these events, until the turn
// of large outputs is there. If there is none, nothing of the displays is kept.
func (c *Cell) takeRoom(events []contract.Event) (done func()) {
	if *c.limits() != ForNotebooks { // a document is made alone
		return func() {}
	}
	size := int64(-memory.FreeDisplays)
	for i := range events {
		for _, raw := range events[i].Data {
			size += int64(len(raw))
		}
	}
	if c.noRoom = size > 0 && !memory.Displays.Take(size); c.noRoom || size <= 0 {
		return func() {}
	}
	return func() { memory.Displays.Return(size) }
}

// Forgotten reports whether no update changes the cell any more.
func (c *Cell) Forgotten() bool {
	c.collector.mu.Lock()
	defer c.collector.mu.Unlock()
	return c.forgotten
}

// Size returns about how many bytes the outputs have.
func (c *Cell) Size() int64 {
	c.collector.mu.Lock()
	defer c.collector.mu.Unlock()
	return c.size()
}

// Outputs returns the outputs as they are now. They do not change any more; do not change them
// either, because they share memory with later ones.
func (c *Cell) Outputs() []*Output {
	c.collector.mu.Lock()
	defer c.collector.mu.Unlock()
	return c.outputs()
}

func (c *Cell) limits() *Limits { return &c.collector.Limits }

func (c *Cell) add(ev *contract.Event) {
	if ofRelay(ev) {
		return
	}
	switch ev.Type {
	case contract.EventClearOutput, contract.EventUpdateDisplayData:
	case contract.EventWidgetState:
		c.collector.addWidgets(ev.Data[widgets.StateMIME])
		return
	case contract.EventWidgetView:
		if c.collector.WidgetTexts {
			c.update(ev.DisplayID, c.content(ev))
		}
		return
	default:
		if c.clear {
			c.reset()
		}
	}
	if ev.Cut != "" || ev.Type == contract.EventGap {
		c.missing(ev)
	}
	switch ev.Type {
	case contract.EventStream:
		c.stream(ev.Name, ev.Text)
	case contract.EventDisplayData, contract.EventExecuteResult:
		c.display(ev)
	case contract.EventUpdateDisplayData:
		c.update(ev.DisplayID, c.content(ev))
	case contract.EventError:
		c.failure(ev)
	case contract.EventClearOutput:
		if c.clear = ev.Wait; !ev.Wait {
			c.reset()
		}
	case contract.EventInputRequest: // a page shows the prompt in an input box, which is not kept
		c.stream(contract.Stdout, ev.Prompt+"\n")
	}
}

// ofRelay reports whether an event is a report of the relay's own code in the kernel.
func ofRelay(ev *contract.Event) bool {
	for mime := range ev.Data {
		if strings.HasPrefix(mime, contract.OwnMIME) {
			return true
		}
	}
	return false
}

// missing marks output that is not there.
func (c *Cell) missing(ev *contract.Event) {
	why := ev.Cut
	switch {
	case why == "" && ev.Bytes == 0:
		why = "the VM lost it, because its disk was full or its log was damaged"
	case why == "":
		why = fmt.Sprintf("%d bytes, because the VM does not keep that much of one run", ev.Bytes)
	}
	c.stream(contract.Stderr, "[output is missing here: "+why+"]\n")
}

func (c *Cell) stream(name, text string) {
	if name != contract.Stderr {
		name = contract.Stdout
	}
	if !c.isLast(name) {
		c.line.flush(c.keep)
		c.dropEmpty()
	}
	if !c.isLast(name) {
		c.append(&entry{Output: Output{Type: Stream, Name: name}, cell: c})
	}
	c.line.write(ValidText(text), c.keep)
}

func (c *Cell) isLast(name string) bool {
	last := c.last()
	return last != nil && last.Type == Stream && last.Name == name
}

// failure adds the output of an exception. One without a traceback, as of sys.exit, shows its
// name: programs display nothing else of an error.
func (c *Cell) failure(ev *contract.Event) {
	e := &entry{Output: Output{Type: Error, EName: ev.EName, EValue: ev.EValue, Traceback: ev.Traceback}, cell: c}
	if len(e.Traceback) == 0 {
		e.Traceback = []string{strings.TrimSuffix(ev.EName+": "+ev.EValue, ": ")}
	}
	e.size = int64(len(e.EName) + len(e.EValue))
	for _, line := range e.Traceback {
		e.size += int64(len(line)) + 8
	}
	if e.size > c.allowance() {
		e.EName, e.EValue, e.Traceback, e.size = "", "", []string{"[the exception is not kept: the cell's outputs are too large]"}, 0
	}
	c.append(e)
	if whole := c.content(ev); whole.missing() && whole.size <= c.allowance() { // of a long traceback
		whole.size += e.size
		c.show(e, whole)
	}
}

// display adds an output. As nbclient and the classic notebook do, it also changes the displays
// that have its id already.
func (c *Cell) display(ev *contract.Event) {
	e := &entry{Output: Output{Type: DisplayData}, cell: c, id: ev.DisplayID}
	if ev.Type == contract.EventExecuteResult {
		e.Type, e.ExecutionCount = ExecuteResult, ev.ExecutionCount
	}
	shown := c.content(ev)
	c.update(e.id, shown)
	c.append(e)
	c.show(e, shown)
	if e.id == "" || c.forgotten {
		return
	}
	all := c.collector.displays[e.id]
	c.collector.displays[e.id] = append(all[max(0, len(all)-maxUpdated+1):], e)
}

// content returns what an event displays.
func (c *Cell) content(ev *contract.Event) *content {
	shown := newContent(ev, c.limits().Payload)
	if c.noRoom {
		return shown.within(0)
	}
	return shown
}

// update changes all displays of an id.
func (c *Cell) update(id string, shown *content) {
	if id == "" {
		return
	}
	for _, e := range c.collector.displays[id] {
		c.show(e, shown)
		if e.cell != c {
			c.collector.touched(e.cell)
		}
	}
}

// show gives a display of this or another cell its content, as much as fits there.
func (c *Cell) show(e *entry, shown *content) {
	e.cell.release(e)
	if room := e.cell.allowance(); shown.size > room {
		shown = shown.within(room)
	}
	e.content, e.size = shown, shown.size
	e.cell.payloads += e.size
	if shown.users++; shown.users == 1 && shown.missing() {
		c.fresh = append(c.fresh, shown)
	}
}
