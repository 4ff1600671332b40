package nbrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// Outputs are written into the notebook at most every writePause, and so seldom that writing
// takes a writeShare-th of the time.
const (
	writePause = 2 * time.Second
	writeShare = 20
	// mostUnwritten is how many bytes of outputs wait for that.
	mostUnwritten = 16 << 20
	// mostNotebook is up to how many bytes a notebook grows by outputs.
	mostNotebook = 64 << 20
)

// outputs brings what cells print and display into the notebook's file. It lasts from call to call of
// a Run, which goes on in the middle of a cell.
type outputs struct {
	enabled   bool // there is a file
	most      int  // bytes of the file
	vm        VM
	collector output.Collector
	cells     map[string]*shownCell // by their handles when they began
	now       *shownCell            // that was read last
	pending   []*shownCell          // that differ from the file, in order
	wrote     time.Time
	took      time.Duration // of the last write
	saved     []string      // files with whole texts
}

// shownCell is an execution of a cell whose outputs this process has collected.
type shownCell struct {
	*output.Cell
	execution string
	cell      int    // its key
	source    string // digest of the source that ran
	count     int    // the kernel's execution_count
	pending   bool
	ended     bool
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
func (o *outputs) start(cell *CellRecord, source, execution string) {
	// Cells that have ended, are in the file and get no updates hold memory for nothing.
	maps.DeleteFunc(o.cells, func(_ string, c *shownCell) bool { return c.ended && !c.pending && c.Forgotten() })
	o.pending = slices.DeleteFunc(o.pending, func(c *shownCell) bool { return c.cell == cell.Key }) // another attempt
	o.now = &shownCell{Cell: o.collector.Begin(cell.Handle), execution: execution, cell: cell.Key, source: source}
	o.cells[cell.Handle] = o.now
	o.mark(o.now)
}

// markAll says that no outputs may be in the file: cells have other handles there now.
func (o *outputs) markAll() {
	for _, c := range o.cells {
		o.mark(c)
	}
}

// mark says that a cell's outputs differ from the file.
func (o *outputs) mark(c *shownCell) {
	if c != nil && !c.pending {
		c.pending = true
		o.pending = append(o.pending, c)
	}
}

// add takes in an answer about the execution of a cell, with its new events.
func (o *outputs) add(ctx context.Context, cell *CellRecord, source string, e contract.Execution) {
	if !o.enabled {
		return
	}
	if o.now == nil || o.now.execution != e.ExecutionID {
		o.start(cell, source, e.ExecutionID)
	}
	c := o.now
	c.count = e.ExecutionCount
	if len(e.Events) == 0 {
		return
	}
	c.Add(ctx, e.Events, func(ctx context.Context, blob contract.Blob, w io.Writer) error {
		return o.vm.Blob(ctx, e.ExecutionID, blob, w)
	})
	o.mark(c)
	for _, key := range o.collector.Changed() {
		o.mark(o.cells[key])
	}
}

// end takes in the end of an execution.
func (o *outputs) end(e contract.Execution) {
	if c := o.now; c != nil && c.execution == e.ExecutionID && e.Status != contract.StatusCancelled {
		c.count, c.ended = e.ExecutionCount, true
		o.mark(c)
	}
}

// due is how long to wait until the next write; 0 if it is due, or nothing is to be written.
func (o *outputs) due() time.Duration {
	return max(0, max(writePause, writeShare*o.took)-time.Since(o.wrote))
}

// flush writes the outputs that differ from the file, if a write is due or forced. The cells are found
// by their handles.
func (o *outputs) flush(ctx context.Context, file *notebook.File, handle func(cell int) string, force bool) (notes []string, err error) {
	waiting := int64(0) // bytes
	for _, c := range o.pending {
		waiting += c.Size()
	}
	if len(o.pending) == 0 || !force && o.due() > 0 && waiting < mostUnwritten {
		return nil, nil
	}
	began := time.Now()
	change, err := file.Edit(ctx, "", func(d *notebook.Document) error { return o.write(d, handle) })
	if err != nil {
		return change.Notes, err
	}
	o.wrote, o.took = time.Now(), time.Since(began)
	for _, c := range o.pending {
		c.pending = false
	}
	o.pending = nil
	return change.Notes, nil
}

// write sets the outputs of the cells that wait. A cell that was deleted, or has another source
// now, is left as it is: the outputs are not its own.
func (o *outputs) write(d *notebook.Document, handle func(cell int) string) error {
	if o.most == 0 {
		o.most = max(mostNotebook, len(d.Bytes()))
	}
	var all []notebook.NewOutputs
	for _, c := range o.pending {
		i, err := d.Find(handle(c.cell))
		switch {
		case errors.Is(err, notebook.ErrNoCell), errors.Is(err, notebook.ErrCellChanged):
			continue
		case err != nil:
			return err
		}
		if now := d.Cell(i); now.Type == notebook.Code && hash(now.Source) == c.source {
			new := notebook.NewOutputs{Index: i, ExecutionCount: c.count, Outputs: []map[string]any{}, Instead: c.elsewhere(o.most)}
			for _, shown := range c.Outputs() {
				new.Outputs = append(new.Outputs, shown.Object())
			}
			all = append(all, new)
		}
	}
	if err := d.SetOutputs(all, o.most); err != nil {
		return err
	}
	return d.SetWidgets(o.collector.Widgets())
}

// elsewhere is the output of a cell for whose outputs a notebook of most bytes has no room.
func (c *shownCell) elsewhere(most int) []map[string]any {
	text := fmt.Sprintf("[The outputs of this cell are left out here, because the notebook would have over %d bytes. Run %s has them on the VM: `colab-relay logs %[2]s` prints them.]\n", most, c.execution)
	return []map[string]any{(&output.Output{Type: output.Stream, Name: contract.Stderr, Text: text}).Object()}
}

// peeker shortens the first wait for a cell to a second, so that one that runs longer is seen running,
// and a wait while outputs are to be written.
type peeker struct {
	VM
	*advance
}

// Execution reads an execution.
func (p *peeker) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	if p.now.id != id {
		wait = min(wait, time.Second)
	}
	if len(p.outputs.pending) > 0 {
		wait = min(wait, max(p.outputs.due(), time.Second))
	}
	return p.VM.Execution(ctx, id, offset, wait, maxBytes)
}

// reading is what this call has read of an execution.
type reading struct {
	id       string
	lastLine string
	asked    *contract.Event // the last prompt
	waits    bool            // at that prompt
}

// prompt is the open prompt; nil for none.
func (rd *reading) prompt() *contract.Event {
	if !rd.waits {
		return nil
	}
	return rd.asked
}

// see keeps the last printed line and the last prompt, which may arrive before the status says that
// the execution waits.
func (rd *reading) see(e contract.Execution) {
	if rd.id != e.ExecutionID {
		*rd = reading{id: e.ExecutionID}
	}
	for _, ev := range e.Events {
		switch ev.Type {
		case contract.EventStream:
			rd.lastLine = lastLine(rd.lastLine, ev.Text)
		case contract.EventWidgetView:
			var text string
			_ = json.Unmarshal(ev.Data["text/plain"], &text)
			rd.lastLine = lastLine(rd.lastLine, text)
		case contract.EventInputRequest:
			rd.asked = &ev
		}
	}
	rd.waits = e.Status == contract.StatusWaitingForInput
}

// lastLine returns the last line that is not blank of what was printed.
func lastLine(before, text string) string {
	const most = 200
	text = strings.TrimRight(text, " \t\r\n")
	if text == "" {
		return before
	}
	return shorten(text[strings.LastIndexAny(text, "\r\n")+1:], most)
}

// savesStates reports whether cells tagged save-state save the kernel's variables.
func (a *advance) savesStates() bool { return a.spec.StateName != "" && a.opt.States != nil }

// keepState saves the variables after a cell that asks for it, or restores them into a new kernel,
// and reports whether there is more to do in this call.
func (a *advance) keepState(ctx context.Context) (more bool, err error) {
	run := a.run
	saved := &SavedState{Cell: run.Saving}
	if run.Restoring {
		saved = run.Saved
	}
	done, err := a.transferState(ctx, saved)
	_, unreachable := errors.AsType[*client.Error](err)
	switch {
	case unreachable || ctx.Err() != nil:
		return false, err
	case err == nil && !done: // the call's time is over, and the next one goes on
		return false, nil
	case err == nil && run.Restoring:
		a.adoptRestored()
	case err == nil:
		run.Saved = saved
	case run.Restoring:
		a.addNote("the state saved after the cell with id %s could not be restored, so the run starts again at its first cell: %s", run.handle(saved.Cell), plain.Line(err.Error()))
		run.Saved = nil
		run.resetAfter(0)
	default:
		a.addNote("the variables after the cell with id %s could not be saved: %s", run.handle(saved.Cell), plain.Line(err.Error()))
	}
	run.Saving, run.Restoring = 0, false
	return true, a.save()
}

// transferState saves the state, or restores it, and reports whether that is done.
func (a *advance) transferState(ctx context.Context, saved *SavedState) (done bool, err error) {
	if !a.savesStates() {
		return false, errors.New("state_name is not given any more")
	}
	o := kernelstate.Options{Name: a.spec.StateName, Runtime: a.spec.Runtime, Version: saved.Version, Until: a.opt.Until}
	if a.run.Restoring {
		got, err := kernelstate.Restore(ctx, a.opt.States, a.dir, o)
		a.addNotes(got.Warnings)
		return err == nil && got.Done(), err
	}
	got, err := kernelstate.Save(ctx, a.opt.States, a.dir, o)
	a.addNotes(got.Warnings)
	if err != nil || !got.Done() {
		return false, err
	}
	saved.Version = got.Manifest.Version
	return true, nil
}

// adoptRestored records that the cells up to the restored state need not run in this kernel.
func (a *advance) adoptRestored() {
	a.run.resetAfter(a.run.Saved.Cell)
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		if c.Status == CellSucceeded || c.Status == CellExpectedFailure {
			a.record.ran(c, Step{Source: c.Source, Sent: c.Sent}, c.Status)
		}
	}
}
