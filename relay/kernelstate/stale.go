package kernelstate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// harmless are the titles of operations that leave the user's variables as they are.
var harmless = []string{saveTitle, clearTitle, prepareTitle}

// isStale reports whether an unfinished save has old variables, because other code ran
// after it, and should start again. While other code still runs it does not: a new save
// would have to wait for that code, and the VM may end before. The old save is then
// finished, and j.otherCodeRan is set. It also fills in the execution's id, which is unknown if
// the submit's answer was lost.
func (j *job) isStale(ctx context.Context, p *pending) bool {
	list, err := j.c.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return false
	}
	at := slices.IndexFunc(list.Executions, func(e contract.Execution) bool { return e.RequestID == p.Work.RequestID })
	if at < 0 {
		// Either so many executions followed that the list no longer contains it, or the
		// submit never arrived.
		return len(list.Executions) == contract.MaxListExecutions
	}
	p.Work.ExecutionID = list.Executions[at].ExecutionID
	busy := false
	for _, e := range list.Executions[:at] {
		if e.StartedAt != nil && !isHarmless(e.CodePreview) {
			j.otherCodeRan, busy = true, busy || !e.Status.Finished()
		}
	}
	return j.otherCodeRan && !busy
}

func isHarmless(code string) bool {
	return slices.ContainsFunc(harmless, func(title string) bool { return strings.HasPrefix(code, "# "+title+" ") })
}

// discard deletes what a save left on the VM.
func (j *job) discard(ctx context.Context, p *pending) {
	path := p.Remote
	if path == "" {
		path = j.written(ctx, p)
	}
	if path != "" {
		j.removeRemote(ctx, path)
	}
}

// written returns the file of a save whose report no call has read; empty when unknown.
func (j *job) written(ctx context.Context, p *pending) string {
	if p.Work.ExecutionID == "" {
		return ""
	}
	t := p.Work
	t.WithPackage = true // it is not to be called again
	text, err := j.run(ctx, &t, operationOf(saveTitle, "save"), nil, &Progress{})
	var report saved
	if err != nil || json.Unmarshal(text, &report) != nil {
		return ""
	}
	return report.Path
}
