// Package output makes the outputs of a notebook's cells from the events of their executions, as
// a notebook's page does.
//
// It must not know notebooks' files or where events come from. Whatever an executor sends, an
// output is valid for nbformat, and its size and the time it takes are bounded. Outputs depend on
// the events alone, not on the pieces in which they arrive: reading a log again gives the same.
//
// Start reading at Collector; content.go reads payloads, for all readers of events, show.go folds
// progress bars and bounds a cell, output.go keeps the whole of a long text.
package output

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
	"colabrelay/shared/widgets"
)

// Fetch writes a payload that is not in its event.
type Fetch func(ctx context.Context, blob contract.Blob, w io.Writer) error

// Collector has the outputs of the cells of one notebook while they run. It follows
// update_display_data into earlier cells. The zero value is ready for use. It is safe for
// concurrent use, but only one goroutine may add to a cell.
type Collector struct {
	Limits Limits   // the zero value means ForNotebooks
	Save   SaveText // nil: what is too long for the notebook is not kept
	// WidgetTexts shows widgets as their text, for documents that show no widgets. Otherwise a display
	// of a widget stays as the kernel sent it, and Widgets has the state.
	WidgetTexts bool

	mu       sync.Mutex
	cells    []*Cell             // in order of Begin
	displays map[string][]*entry // by display id, in order of appearance, at most maxUpdated each
	changed  []*Cell
	widgets  map[string]JSON // states, by the ids of models
	stated   int             // bytes of widgets

	held memory.Holding
}

// Close frees the turn by which the Collector holds large payloads. A later Add takes another one.
func (c *Collector) Close() { c.held.Done() }

// hold waits for the turn of notebooks with large outputs, if these cells have them. If ctx ends
// before, it fails.
func (c *Collector) hold(ctx context.Context) error {
	var payloads, all int64
	c.mu.Lock()
	for _, cell := range c.cells {
		payloads += cell.payloads
		all += cell.size()
	}
	c.mu.Unlock()
	if payloads <= freePayloads && all <= freeHeld || c.Limits != ForNotebooks { // a document is made alone
		return nil
	}
	return c.held.Take(ctx, memory.Notebooks)
}

// Begin returns a cell without outputs. A cell that had this key before gets none any more.
func (c *Collector) Begin(key string) *Cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.displays == nil {
		c.displays = map[string][]*entry{}
	}
	if c.Limits == (Limits{}) {
		c.Limits = ForNotebooks
	}
	if at := c.index(key); at >= 0 {
		c.forget(at)
	}
	c.shrink()
	cell := &Cell{collector: c, key: key, spill: spill{save: c.Save, key: key}}
	c.cells = append(c.cells, cell)
	return cell
}

// Changed returns the keys of the cells whose outputs an update in another cell changed since the
// last call.
func (c *Collector) Changed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for _, cell := range c.changed {
		keys = append(keys, cell.key)
		cell.touched = false
	}
	c.changed = nil
	return keys
}

// Widgets returns the states of widgets that executions have reported, by the ids of models.
func (c *Collector) Widgets() map[string]JSON {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.widgets)
}

// addWidgets takes in the states of widgets, as far as there is room.
func (c *Collector) addWidgets(raw json.RawMessage) {
	var found widgets.Document
	_ = json.Unmarshal(raw, &found)
	for id, state := range found.State {
		value, err := ParseJSON(state)
		if grown := c.stated + len(id) + len(value) - len(c.widgets[id]); err == nil && grown <= maxWidgets {
			if c.widgets == nil {
				c.widgets = map[string]JSON{}
			}
			c.widgets[id], c.stated = value, grown
		}
	}
}

func (c *Collector) index(key string) int {
	return slices.IndexFunc(c.cells, func(cell *Cell) bool { return cell.key == key })
}

// shrink forgets the oldest cells while all together are over the bound.
func (c *Collector) shrink() {
	var total int64
	for _, cell := range c.cells {
		total += cell.size()
	}
	for len(c.cells) > 0 && total > c.Limits.Kept {
		total -= c.cells[0].size()
		c.forget(0)
	}
}

// forget lets no update reach a cell any more.
func (c *Collector) forget(at int) {
	cell := c.cells[at]
	cell.forgotten = true
	cell.unregister(cell.all()...)
	c.cells = slices.Delete(c.cells, at, at+1)
	c.changed = slices.DeleteFunc(c.changed, func(changed *Cell) bool { return changed == cell })
}

// touched notes that another cell changed the outputs of this one.
func (c *Collector) touched(cell *Cell) {
	if !cell.touched {
		cell.touched = true
		c.changed = append(c.changed, cell)
	}
}

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

// Add adds events, in the order of their log, and fetches the payloads that are to be shown. What
// ctx leaves no time for is requested by the next Add, also by one without events.
func (c *Cell) Add(ctx context.Context, events []contract.Event, fetch Fetch) {
	done := c.takeRoom(events)
	defer done()
	c.collector.mu.Lock()
	for i := range events {
		c.add(&events[i])
	}
	c.spill.flush(c.line.text())
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
	if ev.OfRelay() {
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
		c.stream(contract.Stderr, "[output is missing here: "+Missing(ev)+"]\n")
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

// Missing says why output is not there that an event stands for, or was shortened.
func Missing(ev *contract.Event) string {
	switch {
	case ev.Cut != "":
		return ev.Cut
	case ev.Bytes == 0:
		return "the VM lost it, because its disk was full or its log was damaged"
	}
	return fmt.Sprintf("%d bytes, because the VM does not keep that much of one run", ev.Bytes)
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
