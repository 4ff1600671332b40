package export

import (
	"bytes"
	"context"

	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/shared/contract"
)

// ipynb makes a notebook with a cell for each run.
func ipynb(ctx context.Context, _ string, runs []Run) (document, error) {
	var b bytes.Buffer
	err := notebook.Notebook{Cells: cells(ctx, runs)}.Write(&b)
	return document{text: b.Bytes()}, err
}

// cells returns a cell with outputs for each run.
func cells(ctx context.Context, runs []Run) []notebook.RunCell {
	var c output.Collector
	var all []notebook.RunCell
	for _, r := range runs {
		events := r.Events
		if text := r.ending(); text != "" {
			events = append(events[:len(events):len(events)], contract.Event{Type: contract.EventStream, Name: contract.Stderr, Text: text})
		}
		all = append(all, notebook.RunCell{
			Seed: r.ExecutionID, Source: r.source(), ExecutionCount: r.ExecutionCount, Outputs: c.Cell(ctx, events, r.Fetch),
		})
	}
	return all
}
