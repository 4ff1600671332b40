package kernelstate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// harmless begin the first lines of those cells of this package that leave the user's
// variables as they are; see cell.
var harmless = []string{saveTitle, clearTitle, prepareTitle, keepTitle}

// outrun reports whether a save that is under way has the variables from before other
// code ran, and should begin anew. It is finished all the same, with j.passed set,
// while other code holds the kernel: a new one would have to wait behind that, and the
// VM may not live as long.
func (j *job) outrun(ctx context.Context, p *pending) bool {
	list, err := j.c.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return false
	}
	at := slices.IndexFunc(list.Executions, func(e contract.Execution) bool { return e.RequestID == p.Work.RequestID })
	if at < 0 {
		// So many came after it that it fell off the list; else the submit never arrived.
		return len(list.Executions) == contract.MaxListExecutions
	}
	busy := false
	for _, e := range list.Executions[:at] {
		if e.StartedAt != nil && !isHarmless(e.CodePreview) {
			j.passed, busy = true, busy || !e.Status.Finished()
		}
	}
	return j.passed && !busy
}

func isHarmless(code string) bool {
	return slices.ContainsFunc(harmless, func(title string) bool { return strings.HasPrefix(code, "# "+title+" ") })
}

// giveUp removes what a save left on the VM.
func (j *job) giveUp(ctx context.Context, p *pending) {
	path := p.Remote
	if path == "" {
		path = j.written(ctx, p)
	}
	if path != "" {
		j.removeRemote(ctx, path)
	}
}

// written is the file of a save whose report nobody read; empty when it can't be had.
func (j *job) written(ctx context.Context, p *pending) string {
	if p.Work.ExecutionID == "" {
		return ""
	}
	r, err := j.follow(ctx, contract.Execution{ExecutionID: p.Work.ExecutionID})
	if err != nil || !r.last.End {
		return ""
	}
	report, err := j.reportOf(ctx, r)
	var told saved
	if err != nil || json.Unmarshal(report, &told) != nil {
		return ""
	}
	return told.Path
}
