package nbrun

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/shared/contract"
)

// Outputs are written into the notebook at most every writePause, and so seldom that writing
// takes a writeShare-th of the time.
const (
	writePause = 2 * time.Second
	writeShare = 20
)

// outputs brings what cells print and display into the notebook's file.
type outputs struct {
	enabled   bool // there is a file
	vm        VM
	collector output.Collector
	cells     map[string]*shownCell // by handle
	pending   []*shownCell          // that differ from the file, in order
	wrote     time.Time
	took      time.Duration // of the last write
	notes     []string
	saved     []string // files with whole texts
}

// shownCell is a cell whose outputs this process has collected.
type shownCell struct {
	*output.Cell
	handle  string
	source  string // digest of the source that ran
	count   int    // the kernel's execution_count
	pending bool
}

// begin prepares for a call.
func (o *outputs) begin(enabled bool, vm VM, save output.SaveText) {
	o.enabled, o.vm = enabled, vm
	if o.cells == nil {
		o.cells = map[string]*shownCell{}
	}
	if save == nil {
		return
	}
	o.collector.Save = func(key string, offset int64, text []byte) (string, error) {
		name, err := save(key, offset, text)
		if err == nil && len(text) > 0 && !slices.Contains(o.saved, name) {
			o.saved = append(o.saved, name)
		}
		return name, err
	}
}

// start clears the outputs of a cell that has started.
func (o *outputs) start(f *Flight) {
	c := &shownCell{Cell: o.collector.Begin(f.Handle), handle: f.Handle, source: f.Source}
	if old := o.cells[f.Handle]; old != nil {
		o.pending = slices.DeleteFunc(o.pending, func(p *shownCell) bool { return p == old })
	}
	o.cells[f.Handle] = c
	o.mark(c)
}

// mark says that a cell's outputs differ from the file.
func (o *outputs) mark(c *shownCell) {
	if c != nil && !c.pending {
		c.pending = true
		o.pending = append(o.pending, c)
	}
}

// add takes in events of a cell.
func (o *outputs) add(ctx context.Context, f *Flight, e contract.Execution) {
	c := o.cells[f.Handle]
	if c == nil {
		return
	}
	c.count = e.ExecutionCount
	if len(e.Events) == 0 {
		return
	}
	c.Add(ctx, e.Events, func(ctx context.Context, blob contract.Blob, w io.Writer) error {
		return o.vm.Blob(ctx, f.ExecutionID, blob, w)
	})
	o.mark(c)
	for _, handle := range o.collector.Changed() {
		o.mark(o.cells[handle])
	}
}

// end takes in the end of a cell.
func (o *outputs) end(f *Flight, e contract.Execution) {
	c := o.cells[f.Handle]
	if c == nil || e.Status == contract.StatusCancelled {
		return
	}
	c.count = e.ExecutionCount
	o.mark(c)
}

// waits reports whether outputs of a cell are not in the file yet.
func (o *outputs) waits(handle string) bool {
	c := o.cells[handle]
	return c != nil && c.pending
}

// due is how long to wait until the next write; 0 if it is due, or nothing is to be written.
func (o *outputs) due() time.Duration {
	return max(0, max(writePause, writeShare*o.took)-time.Since(o.wrote))
}

// flush writes the outputs that differ from the file, if a write is due or forced.
func (o *outputs) flush(ctx context.Context, file *notebook.File, force bool) error {
	if len(o.pending) == 0 || !force && o.due() > 0 {
		return nil
	}
	if o.enabled {
		began := time.Now()
		change, err := file.Edit(ctx, "", o.write)
		o.notes = append(o.notes, change.Notes...)
		if err != nil {
			return err
		}
		o.took = time.Since(began)
	}
	o.wrote = time.Now()
	for _, c := range o.pending {
		c.pending = false
	}
	o.pending = nil
	return nil
}

// write sets the outputs of the cells that wait. A cell that was deleted, or has another source
// now, is left as it is: the outputs are not its own.
func (o *outputs) write(d *notebook.Document) error {
	var all []notebook.NewOutputs
	for _, c := range o.pending {
		i, err := d.Find(c.handle)
		var none *notebook.NoCellError
		switch {
		case errors.As(err, &none), errors.Is(err, notebook.ErrCellChanged):
			continue
		case err != nil:
			return err
		}
		if now := d.Cell(i); now.Type == notebook.Code && hash(now.Source) == c.source {
			all = append(all, notebook.NewOutputs{Index: i, ExecutionCount: c.count, Outputs: c.objects()})
		}
	}
	return d.SetAllOutputs(all)
}

// objects returns the outputs as the notebook has them.
func (c *shownCell) objects() []map[string]any {
	all := []map[string]any{}
	for _, o := range c.Outputs() {
		all = append(all, o.Object())
	}
	return all
}

// takeNotes returns the notes of the writes since the last call.
func (o *outputs) takeNotes() []string {
	notes := o.notes
	o.notes = nil
	return notes
}
