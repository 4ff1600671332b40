package remoterun

import (
	"context"
	"time"

	"colabrelay/relay/plain"
)

// Cells are the code cells of a notebook.
type Cells struct {
	Sources []string
	Timeout time.Duration // of each cell
}

// RunCells runs the cells one after another, like Run, and stops at the first one that does
// not succeed.
func RunCells(ctx context.Context, vm VM, cells Cells, console Console) error {
	out := newPrinter(vm.Client.Blobs, console)
	for i, source := range cells.Sources {
		r := &run{VM: vm, Code: Code{Text: source, Timeout: cells.Timeout}, endWait: endWait, out: out}
		err := r.run(ctx)
		if err == nil {
			continue
		}
		if rest := len(cells.Sources) - i - 1; rest > 0 {
			out.note("code cell %d of %d did not succeed; %s after it did not run", i+1, len(cells.Sources), plain.Count(rest, "cell"))
		} else {
			out.note("code cell %d of %d did not succeed", i+1, len(cells.Sources))
		}
		return err
	}
	return nil
}
