package nbrun

import (
	"cmp"
	"fmt"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
)

// Succeeded reports whether the run is finished, and nothing failed or was skipped.
func (r *RunRecord) Succeeded() bool { return r.Status == StatusSucceeded && r.unsuccessful() == nil }

// Counts returns how many cells of the run have which status.
func (r *RunRecord) Counts() map[CellStatus]int {
	counts := map[CellStatus]int{}
	for i := range r.Plan {
		counts[r.Plan[i].Status]++
	}
	return counts
}

// Seconds returns how long the last attempts at all cells took, without the time between them.
func (r *RunRecord) Seconds() (total float64) {
	for i := range r.Plan {
		total += r.Plan[i].Seconds()
	}
	return total
}

// Seconds returns how long the last attempt at a cell took.
func (c *CellRecord) Seconds() float64 {
	if c.Last == nil {
		return 0
	}
	return c.Last.Seconds
}

// Summary says in one line how the run ended: how many cells ended how, and how long they took.
func (r *RunRecord) Summary() string {
	var parts []string
	counts := r.Counts()
	for _, status := range []CellStatus{
		CellSucceeded, CellExpectedFailure, CellFailed, CellTimedOut, CellInterrupted, CellKernelDied, CellLost, CellSkipped, CellRunning, CellNotRun,
	} {
		if n := counts[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Words(status)))
		}
	}
	return fmt.Sprintf("%s: %s; %s in %s", Words(r.Status), plain.Count(len(r.Plan), "cell"), cmp.Or(strings.Join(parts, ", "), "none ran"), progress.Seconds(r.Seconds()))
}

// Problem says what a person should know of a cell that did not succeed, or did not run; empty
// for other cells. It is not sanitised.
func (c *CellRecord) Problem() string {
	head := fmt.Sprintf("cell %d (id %s) %s", c.Index, c.Handle, Words(c.Status))
	switch {
	case c.Status == CellSkipped && len(c.SkippedBecause) > 0:
		because := c.SkippedBecause[0]
		var names []string
		for _, name := range because.Names { // code in the kernel can report any text as one
			names = append(names, plain.Word(name))
		}
		return fmt.Sprintf("%s: it uses %s, which the cell with id %s would have made", head, strings.Join(names, ", "), because.Cell)
	case c.Why != "":
		return head + ": " + c.Why
	case c.Status == CellTimedOut: // its exception is only the interrupt
		return head + " after " + progress.Seconds(c.Seconds())
	case c.Status.Failed() && c.Failure() != nil:
		return head + ": " + c.Failure().text()
	case c.Status.Failed() || c.Status == CellSkipped:
		return head
	}
	return ""
}

// Failure is why the last attempt did not succeed; nil for no reason.
func (c *CellRecord) Failure() *Failure {
	if c.Last == nil {
		return nil
	}
	return c.Last.Error
}

// text returns the exception, or else the executor's explanation.
func (f *Failure) text() string {
	text := cmp.Or(f.Reason, f.EValue)
	if f.EName != "" {
		text = strings.TrimSuffix(f.EName+": "+f.EValue, ": ")
	}
	return plain.Clip(text, 300)
}

// Words returns a status as a person reads it.
func Words[S ~string](status S) string { return strings.ReplaceAll(string(status), "_", " ") }
