package export

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"

	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// ipynb makes a notebook with a cell for each run. Characters that a reader of the file would not
// see are escapes there.
func ipynb(ctx context.Context, _ string, runs []Run) (document, error) {
	var b bytes.Buffer
	var c output.Collector
	err := notebook.Notebook{Cells: cells(ctx, runs, &c), Widgets: c.Widgets()}.Write(&b)
	return document{text: plain.EscapeJSON(b.Bytes())}, err
}

// maxFetched bounds the payloads of all runs of a document together: a run's events may name one
// payload a million times.
const maxFetched = 256 << 20

// cells returns a cell with outputs for each run, which c collects.
func cells(ctx context.Context, runs []Run, c *output.Collector) []notebook.RunCell {
	c.Limits = output.ForDocuments
	var collected []*output.Cell
	fetched := int64(0)
	for i, r := range runs {
		events := r.Events
		if text := r.ending(); text != "" {
			events = append(events[:len(events):len(events)], contract.Event{Type: contract.EventStream, Name: contract.Stderr, Text: text})
		}
		cell := c.Begin(strconv.Itoa(i))
		cell.Add(ctx, events, r.within(&fetched))
		collected = append(collected, cell)
	}
	var all []notebook.RunCell
	for i, r := range runs { // now that a later run changes no outputs of an earlier one any more
		all = append(all, notebook.RunCell{
			Seed: r.ExecutionID, Source: r.source(), ExecutionCount: r.ExecutionCount, Outputs: collected[i].Outputs(),
		})
	}
	return all
}

var errTooMuch = errors.New("the payloads of the runs are too large together")

// within returns a Fetch that counts what it fetches, and refuses what is over maxFetched.
func (r *Run) within(fetched *int64) output.Fetch {
	if r.Fetch == nil {
		return nil
	}
	return func(ctx context.Context, blob contract.Blob, w io.Writer) error {
		if *fetched += blob.Bytes; *fetched > maxFetched {
			return errTooMuch
		}
		return r.Fetch(ctx, blob, w)
	}
}
