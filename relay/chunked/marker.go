package chunked

import (
	"encoding/json"

	"colabrelay/shared/contract"
)

// markerMIME is the type of the display outputs by which loop.py tells how far it is.
const markerMIME = contract.OwnMIME + "iteration+json"

// marker is one of them. Done is how many iterations the kernel has completed.
type marker struct {
	Run     string  `json:"run"`
	Event   string  `json:"event"`
	Done    int64   `json:"done"`
	Seconds float64 `json:"seconds"`
	Result  *string `json:"result"` // JSON as text
	Omitted string  `json:"omitted"`
}

// Events of markers.
const (
	eventStart       = "start"
	eventSetup       = "setup"
	eventSetupFailed = "setup_failed"
	eventDone        = "done"
	eventFailed      = "failed"
)

// IsMarker reports whether an event is a batch's word to the relay, not output.
func IsMarker(ev contract.Event) bool {
	_, ok := ev.Data[markerMIME]
	return ok && ev.Type == contract.EventDisplayData
}

// readMarker reads one; false for what no loop.py of ours wrote for this run.
func readMarker(ev contract.Event, s *State) (marker, bool) {
	var m marker
	if json.Unmarshal(ev.Data[markerMIME], &m) != nil || m.Run != s.Key {
		return m, false
	}
	return m, m.Done >= 0 && m.Done <= MaxIterations && m.Seconds >= 0 && (m.Event != eventDone || m.Done > 0)
}

// value is the result a marker brings, if one.
func (m marker) value() (Value, bool) {
	v := Value{Iteration: m.Done - 1, Value: json.RawMessage("null"), Omitted: m.Omitted}
	if m.Result != nil && json.Valid([]byte(*m.Result)) {
		v.Value = json.RawMessage(*m.Result)
		return v, true
	}
	return v, m.Omitted != ""
}
