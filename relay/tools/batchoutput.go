package tools

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"colabrelay/relay/chunked"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// Bounds of what a chunked run's answer shows.
const (
	batchesBytes = 400_000 // of output, collected until the answer is made
	batchFiles   = 20
	batchNotes   = 30
)

// batchOutput collects the output of one call's batches: one Collector for each execution,
// whose text is appended when the execution ends.
type batchOutput struct {
	c       *call
	id      string
	col     *render.Collector // nil until the first event of a batch
	parts   strings.Builder
	heading string // stands before the output of the execution, if it is not empty
	files   []render.File
	notes   []string
	raised  *render.Raised // by the last batch
	prompt  *render.Prompt // while it waits for input
	mu      sync.Mutex
	done, n int64
	mean    float64
}

// add appends events of the batch id, in order.
func (o *batchOutput) add(ctx context.Context, id string, events []contract.Event) {
	if o.col == nil || o.id != id {
		o.flush(ctx)
		o.id, o.col = id, render.New(render.Options{Dir: o.c.outputDir(id), From: events[0].Offset, Limit: viewLimit(o.c.cfg.TextLimit)})
	}
	for _, ev := range events {
		o.col.Add(ev)
	}
}

// flush renders the batch collected last.
func (o *batchOutput) flush(ctx context.Context) {
	o.raised, o.prompt = nil, nil
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
		o.note("output of batch %s is shortened: get_execution with this id and offset=%d shows the rest", o.id, view.NextOffset)
	}
	for _, n := range view.Notes {
		o.note("%s", n)
	}
	o.c.pictures = append(o.c.pictures, view.Pictures...)
	o.c.pictures = o.c.pictures[max(0, len(o.c.pictures)-render.MaxPictures):]
}

// print appends an execution's text: stdout, stderr and display outputs; with a heading also the
// result and the traceback.
func (o *batchOutput) print(view render.View) {
	var b strings.Builder
	b.WriteString(ensureLine(view.Stdout))
	section(&b, "[stderr]", view.Stderr)
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
		o.parts.WriteString(o.heading + "\n")
	}
	o.parts.WriteString(b.String())
	if o.parts.Len() > batchesBytes {
		short := o.text()
		o.parts.Reset()
		o.parts.WriteString(short)
	}
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

// progress records the progress of the run for the messages to the host.
func (o *batchOutput) progress(s *chunked.Record) {
	o.mu.Lock()
	o.done, o.n, o.mean = min(s.Done, s.N), s.N, s.MeanSeconds
	o.mu.Unlock()
	o.c.progress.measureWith(o.measure)
}

func (o *batchOutput) measure() (string, amount) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := fmt.Sprintf("%d/%d iterations", o.done, o.n)
	if o.mean > 0 {
		line += fmt.Sprintf(", %.2g s each", o.mean)
	}
	return line, amount{o.done, o.n}
}
