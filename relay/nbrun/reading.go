package nbrun

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

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
	prompt   *contract.Event // that it waits at
}

// see keeps the last printed line and the open prompt.
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
			rd.prompt = &ev
		}
	}
	if e.Status != contract.StatusWaitingForInput {
		rd.prompt = nil
	}
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
