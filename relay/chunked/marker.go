package chunked

import (
	"encoding/json"

	"colabrelay/shared/contract"
)

// markerMIME is the type of the display outputs by which a batch reports its progress.
const markerMIME = contract.OwnMIME + "iteration+json"

// marker is such a display output. Done is how many iterations the kernel has completed.
// One with eventDone reports the last Count of them.
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

// result is the value of one iteration.
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
	eventCarries     = "carries"  // the variables that iterations pass on
	eventLost        = "lost"     // the kernel lacks the variables; nothing ran
	eventPrepared    = "prepared" // the setup code ran; the kept variables can be loaded
)

// IsMarker reports whether an event is a marker, which is not output of the user's code.
func IsMarker(ev contract.Event) bool {
	_, ok := ev.Data[markerMIME]
	return ok && ev.Type == contract.EventDisplayData
}

// readMarker reads a marker. It returns false if the marker is not of this run or invalid.
func readMarker(ev contract.Event, r *Record) (marker, bool) {
	var m marker
	if json.Unmarshal(ev.Data[markerMIME], &m) != nil || m.Run != r.Key {
		return m, false
	}
	if m.Event != eventDone {
		m.Count, m.Values = 0, nil
	} else if m.Count < 1 {
		return m, false
	}
	return m, m.Done >= m.Count && m.Done <= MaxIterations && m.Seconds >= 0 && m.Slowest >= 0
}

// first is the first iteration that the marker reports.
func (m marker) first() int64 { return m.Done - m.Count }

// values returns the values in the marker, in the order of their iterations.
func (m marker) values() []Value {
	var all []Value
	next := m.first()
	for _, r := range m.Values {
		if r.Iteration < next || r.Iteration >= m.Done {
			continue
		}
		next = r.Iteration + 1
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

// applyMarker updates the record. A marker stands for all markers before it, because those
// may have been lost.
func (run *runner) applyMarker(ev contract.Event, kernelID string) {
	r := run.record
	m, ok := readMarker(ev, r)
	if !ok {
		return
	}
	run.seen.marker = true
	run.noteJump(m.first())
	r.confirm(m.first(), kernelID, r.InstanceID)
	r.confirm(m.Done, kernelID, r.InstanceID)
	switch m.Event {
	case eventDone:
		r.addTimes(m)
		for _, v := range m.values() {
			r.addValue(v)
		}
		if run.opt.Progress != nil {
			run.opt.Progress(r)
		}
	case eventSetup:
		run.applySetup(m)
	case eventFailed, eventSetupFailed:
		run.seen.failed = &m
	case eventCarries:
		r.Carried = &m.CarriedVariables
	case eventLost, eventPrepared:
		run.seen.variables = m.Event
	}
}

// noteJump adds a note if the next marker does not continue at iteration Done.
func (run *runner) noteJump(first int64) {
	done := run.record.Done
	switch {
	case first < done && run.record.Recover == recoveryNone:
		run.addNote("the kernel is at iteration %d, because a state saved then was restored: iterations %d to %d were confirmed before and run again", first, first, done-1)
	case first > done:
		run.addNote("iterations %d to %d ran, but their confirmations were lost, together with any values", done, first-1)
	}
}

func (run *runner) applySetup(m marker) {
	r := run.record
	r.SetupSeconds = max(r.SetupSeconds, m.Seconds)
	if r.Done > 0 && r.InFlight.Policy != policyPrepare {
		run.addNote("the setup code ran before iteration %d, because this kernel had not run it: variables that iterations set in another kernel are missing (restore_kernel_state restores what save_kernel_state saved)", r.Done)
	}
}
