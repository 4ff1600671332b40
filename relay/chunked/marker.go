package chunked

import (
	"encoding/json"
	"fmt"

	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// markerMIME is the type of the display outputs by which the kernel reports a run's progress.
const markerMIME = contract.OwnMIME + "iteration+json"

// marker is such a display output. Done is how many iterations the kernel has completed.
// One with eventDone reports the last Count of them.
type marker struct {
	Run       string   `json:"run"`
	Event     event    `json:"event"`
	Done      int64    `json:"done"`
	Fresh     bool     `json:"fresh"` // of eventStart: the setup code is going to run
	Count     int64    `json:"count"`
	Seconds   float64  `json:"seconds"` // of the setup, or of all Count together
	Slowest   float64  `json:"slowest"`
	Values    []result `json:"values"`
	Carried   []string `json:"carried"`
	Unkept    []unkept `json:"unkept"`
	Kept      *Copy    `json:"kept"`
	Iteration int64    `json:"iteration"`
	Changed   []string `json:"changed"`
	Reason    Status   `json:"reason"` // of eventStopped
	Names     []string `json:"names"`
	Detail    string   `json:"detail"` // of eventStopped: why a copy could not be loaded
}

// unkept is a variable that can't be kept, and why.
type unkept = kernelstate.Omission

// result is the value of one iteration.
type result struct {
	Iteration int64   `json:"i"`
	Result    *string `json:"result"` // JSON as text
	Omitted   string  `json:"omitted"`
}

// event is what a marker reports.
type event string

const (
	eventStart       event = "start"
	eventSetup       event = "setup"
	eventSetupFailed event = "setup_failed"
	eventVariables   event = "variables" // which can't be kept
	eventRestored    event = "restored"  // the copy was loaded
	eventAnew        event = "anew"      // what the setup made in a new kernel, because no copy had it
	eventDone        event = "done"
	eventRound       event = "round" // the end of a round: what it left is recorded
	eventFailed      event = "failed"
	eventStopped     event = "stopped" // nothing runs until somebody answers
	eventFinished    event = "finished"
)

// IsMarker reports whether an event is a marker, which is not output of the user's code.
func IsMarker(ev contract.Event) bool {
	_, ok := ev.Data[markerMIME]
	return ok && ev.Type == contract.EventDisplayData
}

// Bounds of what a marker can report. The user's code could display one of its own.
const (
	maxSeconds = 1e12 // sums of larger ones might not be numbers that a record can hold
	maxMarker  = 4 << 20
	maxNames   = 100
	maxReasons = 20
	maxText    = 200 // characters of a name or a reason
	maxPath    = 4096
	maxDepth   = 32 // levels of a value; the kernel's side keeps values of 20
)

// readMarker reads a marker. It returns false if the marker is not of this run or invalid.
func readMarker(ev contract.Event, r *Record) (marker, bool) {
	var m marker
	text := ev.Data[markerMIME]
	if len(text) > maxMarker || json.Unmarshal(text, &m) != nil || m.Run != r.Key {
		return m, false
	}
	if m.Event != eventDone {
		m.Count, m.Values, m.Slowest = 0, nil, m.Seconds
	} else if m.Count < 1 {
		return m, false
	}
	m.Carried, m.Changed, m.Names = boundedNames(m.Carried), boundedNames(m.Changed), boundedNames(m.Names)
	m.Detail = clip(m.Detail)
	m.Unkept = m.Unkept[:min(len(m.Unkept), maxReasons)]
	for i := range m.Unkept {
		m.Unkept[i].Name, m.Unkept[i].Reason = clip(m.Unkept[i].Name), clip(m.Unkept[i].Reason)
	}
	return m, m.Done >= m.Count && m.Done <= MaxIterations && m.Iteration >= 0 && m.Iteration <= MaxIterations &&
		m.Seconds >= 0 && m.Seconds <= maxSeconds && m.Slowest >= 0 && m.Slowest <= maxSeconds
}

// boundedNames cleans and bounds a list of names. It keeps nil, which means unknown.
func boundedNames(names []string) []string {
	names = names[:min(len(names), maxNames)]
	for i := range names {
		names[i] = clip(names[i])
	}
	return names
}

func clip(s string) string { return plain.Clip(s[:min(len(s), 4*maxText)], maxText) }

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
		v := Value{Iteration: r.Iteration, Value: json.RawMessage("null"), Omitted: clip(r.Omitted)}
		switch {
		case r.Result != nil && bounded.Depth([]byte(*r.Result)) > maxDepth:
			v.Omitted = "nested too deeply"
		case r.Result != nil && json.Valid([]byte(*r.Result)):
			v.Value = json.RawMessage(*r.Result)
		case r.Omitted == "":
			continue
		}
		all = append(all, v)
	}
	return all
}

// applyMarker updates the record. A marker stands for all markers before it, because those
// may have been lost. Nothing changes a run that has reported its end.
func (run *runner) applyMarker(ev contract.Event) {
	r := run.record
	m, ok := readMarker(ev, r)
	if !ok || r.Ending {
		return
	}
	run.marked = true
	run.noteJump(m)
	r.confirm(m.first())
	r.confirm(m.Done)
	r.SlowestSeconds = max(r.SlowestSeconds, m.Slowest)
	switch m.Event {
	case eventDone:
		r.addTimes(m)
		for _, v := range m.values() {
			r.addValue(v)
		}
		if run.opt.Progress != nil {
			run.opt.Progress(r)
		}
	case eventVariables:
		run.noteUnkept(m.Unkept)
	case eventRestored:
		if r.Kept != nil && r.Kept.InstanceID != r.Job.InstanceID {
			run.addNote("the variables come from another VM, and loading them ran code that whoever controlled that VM could choose: if you do not trust what ran there, start the run anew with another checkpoint_name")
		}
	case eventAnew:
		run.addNote("no copy had %s: the setup made it anew in the new kernel, and if it does not give the same again, later results differ", List(m.Names))
	case eventRound:
		run.applyRound(m)
	case eventFailed:
		r.Failure = &Failure{Iteration: &m.Iteration, Variables: m.Changed}
	case eventSetupFailed:
		r.Failure = &Failure{Setup: true}
	case eventStopped:
		if m.Reason.asks() {
			r.Failure = &Failure{Status: string(m.Reason), Variables: m.Names, Detail: m.Detail}
		}
	case eventFinished:
		r.Ending = r.Done >= r.N
	}
}

// applyRound takes in what the kernel recorded at the end of a round.
func (run *runner) applyRound(m marker) {
	r := run.record
	r.Recorded = r.Done
	r.Carried = append([]string{}, m.Carried...)
	if m.Kept != nil || len(m.Unkept) > 0 { // otherwise no copy was due
		run.noteUnkept(m.Unkept)
	}
	if m.Kept.fits(r.Done) {
		r.OnVM = m.Kept
		r.OnVM.InstanceID, r.OnVM.Version = r.Job.InstanceID, ""
	}
}

// noteJump adds a note if the next marker does not continue at iteration Done.
func (run *runner) noteJump(m marker) {
	first, done := m.first(), run.record.Done
	switch {
	case first < done && m.Event == eventStart && m.Fresh && run.record.Placed != nil:
		run.reached = done // the copy is restored next, and the note about that has all
	case first < done && m.Event == eventStart && m.Fresh:
		run.addNote("the kernel is new, and the VM repeats %s, because what the old kernel left was not recorded", Iterations(first, done-1))
	case m.Event == eventRestored && first < max(done, run.reached):
		run.addNote("the variables (%s) were restored as they were before iteration %d: the VM repeats %s", run.record.carried(), first, Iterations(first, max(done, run.reached)-1))
		run.reached = 0
	case first < done:
		run.addNote("the kernel is at iteration %d, because a state saved then was restored: the VM repeats %s, although they were confirmed before", first, Iterations(first, done-1))
	case first > done:
		run.addNote("%s ran, but no confirmation arrived, and any values are lost", Iterations(done, first-1))
	}
}

// Iterations names one iteration or several for a message.
func Iterations(first, last int64) string {
	if first == last {
		return fmt.Sprintf("iteration %d", first)
	}
	return fmt.Sprintf("iterations %d to %d", first, last)
}
