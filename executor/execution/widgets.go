package execution

import (
	"context"
	"encoding/json"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
	"colabrelay/shared/widgets"
)

// maxStates is how many bytes of widgets' states one event has.
const maxStates = 512 << 10

// showWidgets writes the texts of widgets that have changed. A widget of an earlier run is shown by
// the run during which it changes.
func (r *runner) showWidgets(c *run, now time.Time) {
	for _, view := range r.widgets.Views(now) {
		text, _ := json.Marshal(view.Text) // a string
		c.flush(now)
		c.emit(contract.Event{
			Time: now.UTC(), Type: contract.EventWidgetView, DisplayID: view.DisplayID, Data: map[string]json.RawMessage{"text/plain": text},
		})
	}
}

// keepWidgets writes the states of widgets that have changed, for a notebook's metadata.
func (r *run) keepWidgets(now time.Time) {
	states, size := map[string]json.RawMessage{}, 0
	write := func() {
		text, err := json.Marshal(widgets.NewDocument(states))
		if err != nil || len(states) == 0 {
			return
		}
		r.flush(now)
		r.emit(contract.Event{Time: now.UTC(), Type: contract.EventWidgetState, Data: map[string]json.RawMessage{widgets.StateMIME: text}})
		states, size = map[string]json.RawMessage{}, 0
	}
	for id, state := range r.widgets.States() {
		n := len(id) + encodedSize(state)
		if n > maxStates {
			r.gap(1, int64(n))
			continue
		}
		if size += n; size > maxStates {
			write()
			size = n
		}
		states[id] = state
	}
	write()
}

// tellKernel sends the kernel what Output widgets have captured, before the next run begins.
func (r *runner) tellKernel(ctx context.Context) {
	for _, update := range r.widgets.Updates() {
		if _, err := r.kernel.Client.Send(ctx, jupyter.Shell, jupyter.MsgComm, update); err != nil {
			r.q.log.Warn("telling the kernel what a widget shows", "err", err)
		}
	}
}
