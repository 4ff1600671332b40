// Package output makes the outputs of a notebook's cells from the events of their executions, as
// a notebook's page does.
//
// It must not know notebooks' files or where events come from. Whatever an executor sends, an
// output is valid for nbformat, and its size and the time it takes are bounded. Outputs depend on
// the events alone, not on the pieces in which they arrive: reading a log again gives the same.
//
// Start reading at Collector; cell.go adds events, cut.go bounds a cell, line.go folds progress
// bars, content.go reads payloads, spill.go keeps the whole of a long text.
package output

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
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
	cell := &Cell{collector: c, key: key, spill: spill{save: c.Save, key: key, most: c.Limits.Saved}}
	c.cells = append(c.cells, cell)
	return cell
}

// Outputs returns the outputs of the cell with a key as they are now; nil if it is not known, or
// not any more.
func (c *Collector) Outputs(key string) []*Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.index(key); at >= 0 {
		return c.cells[at].outputs()
	}
	return nil
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
