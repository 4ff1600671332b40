package chunked

import (
	"encoding/json"

	"colabrelay/shared/contract"
)

// markerMIME is the type of the display outputs by which markers.py tells how far it is.
const markerMIME = contract.OwnMIME + "iteration+json"

// marker is one of them. Done is how many iterations the kernel has completed; one
// of eventDone tells of the last Count of them.
type marker struct {
	Run              string   `json:"run"`
	Event            string   `json:"event"`
	Done             int64    `json:"done"`
	Count            int64    `json:"count"`
	Seconds          float64  `json:"seconds"` // of all Count together
	Slowest          float64  `json:"slowest"`
	Values           []result `json:"values"`
	CarriedVariables          // of eventCarries
}

// result is what one iteration gave.
type result struct {
	Iteration int64   `json:"i"`
	Result    *string `json:"result"` // JSON as text
	Omitted   string  `json:"omitted"`
}

// Events of markers.
const (
	eventStart       = "start"
	eventSetup       = "setup"
	eventSetupFailed = "setup_failed"
	eventDone        = "done"
	eventFailed      = "failed"
	eventCarries     = "carries"  // what iterations hand on
	eventLost        = "lost"     // the variables of the iterations done are not there: nothing ran
	eventPrepared    = "prepared" // the set-up ran, and the kept variables may come
)

// IsMarker reports whether an event is a batch's word to the relay, not output.
func IsMarker(ev contract.Event) bool {
	_, ok := ev.Data[markerMIME]
	return ok && ev.Type == contract.EventDisplayData
}

// readMarker reads one; false for what no marker of ours wrote for this run.
func readMarker(ev contract.Event, s *Record) (marker, bool) {
	var m marker
	if json.Unmarshal(ev.Data[markerMIME], &m) != nil || m.Run != s.Key {
		return m, false
	}
	if m.Event != eventDone {
		m.Count, m.Values = 0, nil
	} else if m.Count < 1 {
		return m, false
	}
	return m, m.Done >= m.Count && m.Done <= MaxIterations && m.Seconds >= 0 && m.Slowest >= 0
}

// from is where the kernel was before this marker's iterations.
func (m marker) from() int64 { return m.Done - m.Count }

// kept are the values a marker brings, in the order of their iterations.
func (m marker) kept() []Value {
	var all []Value
	at := m.from()
	for _, r := range m.Values {
		if r.Iteration < at || r.Iteration >= m.Done {
			continue
		}
		at = r.Iteration + 1
		v := Value{Iteration: r.Iteration, Value: json.RawMessage("null"), Omitted: r.Omitted}
		switch {
		case r.Result != nil && json.Valid([]byte(*r.Result)):
			v.Value = compact(json.RawMessage(*r.Result))
		case r.Omitted == "":
			continue
		}
		all = append(all, v)
	}
	return all
}
