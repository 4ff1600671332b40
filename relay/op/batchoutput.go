package op

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// Bounds of what a chunked run's answer shows.
const (
	batchesBytes = 400_000 // of output, collected until the answer is made
	batchFiles   = 20
	batchNotes   = 30
)

// batchOutput collects the output of one call's executions: one Collector for each execution,
// whose text is appended when the execution ends.
type batchOutput struct {
	c       *call
	id      string
	col     *render.Collector // nil until the first event of a batch
	parts   strings.Builder
	heading string  // of the execution's output, if it is not empty
	blocks  []block // of executions with a heading, each shortened by itself
	files   []render.File
	notes   []string
	raised  *render.Raised // by the last batch
	prompt  *render.Prompt // while it waits for input
}

// add appends events of the execution id, in order. A person reads them at once, beside the answer.
func (o *batchOutput) add(ctx context.Context, id string, events []contract.Event) {
	if o.c.person != nil {
		for _, ev := range events {
			if ev.Type == contract.EventInputRequest {
				o.prompt = &render.Prompt{Text: ev.Prompt, Password: ev.Password, Offset: ev.Offset}
			}
			fmt.Fprint(o.c.person.Streams.Err, plain.Document(ev.Text+ev.Prompt+ensureLine(strings.Join(ev.Traceback, "\n"))))
		}
		return
	}
	if o.col == nil || o.id != id {
		o.flush(ctx)
		o.id, o.col = id, render.New(render.Options{Dir: o.c.outputDir(o.c.target.Client.InstanceID(), id), From: events[0].Offset, Limit: viewLimit(o.c.cfg.TextLimit)})
	}
	for _, ev := range events {
		o.col.Add(ev)
	}
}

// flush renders the execution collected last.
func (o *batchOutput) flush(ctx context.Context) {
	if o.col == nil {
		return
	}
	view := o.col.View(ctx, o.c.target.Client.Blobs(o.id))
	o.col = nil
	o.print(view)
	o.raised = view.Error
	o.prompt = view.Prompt
	o.files = append(o.files, view.Files...)
	o.files = o.files[max(0, len(o.files)-batchFiles):]
	if view.Truncated {
		o.note("output of %s is shortened: get_execution with this id and offset=%d shows the rest", o.id, view.NextOffset)
	}
	for _, n := range view.Notes {
		o.note("%s", n)
	}
	o.show(view.Pictures)
}

// show keeps the newest pictures for the answer. Further batches may run for long until then, so
// they count against the budget of displays instead of taking a turn.
func (o *batchOutput) show(pictures []render.Picture) {
	for _, p := range pictures {
		if len(o.c.pictures) == render.MaxPictures {
			o.c.free(int64(len(o.c.pictures[0].Data)))
			o.c.pictures = o.c.pictures[1:]
		}
		if !memory.Displays.Take(int64(len(p.Data))) {
			o.note("a picture is saved but not shown, because other calls hold too many at this moment")
			continue
		}
		o.c.displayed += int64(len(p.Data))
		o.c.pictures = append(o.c.pictures, p)
	}
}

// print appends an execution's text: stdout, stderr and display outputs; with a heading also the
// result and the traceback.
func (o *batchOutput) print(view render.View) {
	var b strings.Builder
	b.WriteString(ensureLine(view.Stdout))
	if view.Stderr != "" {
		b.WriteString("[stderr]\n" + ensureLine(view.Stderr))
	}
	for _, out := range view.Outputs {
		b.WriteString(ensureLine(out.Text))
	}
	if o.heading != "" {
		b.WriteString(ensureLine(view.Result))
	}
	if o.heading != "" && view.Error != nil {
		b.WriteString(ensureLine(view.Error.Traceback))
	}
	if o.heading != "" && b.Len() > 0 {
		o.parts.WriteString("[" + o.heading + "]\n")
		o.blocks = append(o.blocks, block{heading: "output of " + o.heading, text: b.String()})
		o.blocks = o.blocks[max(0, len(o.blocks)-mostBlocks):]
	}
	o.parts.WriteString(b.String())
	if o.parts.Len() > batchesBytes {
		short := o.text()
		o.parts.Reset()
		o.parts.WriteString(short)
	}
}

// mostBlocks bounds the cells whose output one answer shows: the last ones.
const mostBlocks = 50

// shown returns the blocks, shortened so that all of them fit.
func (o *batchOutput) shown() []block {
	each := max(leastQuoted, viewLimit(o.c.cfg.TextLimit)/max(1, len(o.blocks)))
	most := max(1, viewLimit(o.c.cfg.TextLimit)/each)
	all := slices.Clone(o.blocks[max(0, len(o.blocks)-most):])
	for i := range all {
		all[i].text, _ = render.Clip(all[i].text, each)
	}
	return all
}

func (o *batchOutput) note(format string, args ...any) {
	if len(o.notes) < batchNotes {
		o.notes = append(o.notes, fmt.Sprintf(format, args...))
	}
}

// text returns the output of all batches, shortened so that a traceback also fits.
func (o *batchOutput) text() string {
	limit := viewLimit(o.c.cfg.TextLimit)
	if o.raised != nil {
		limit -= min(len(o.raised.Traceback), limit/2)
	}
	text, _ := render.Clip(o.parts.String(), limit)
	return text
}

func (o *batchOutput) close() {
	if o.col != nil {
		o.col.Close()
	}
}
