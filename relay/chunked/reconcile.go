package chunked

import (
	"fmt"
	"strings"
)

// reconcile returns the record to continue with: the recorded one, adapted to the requested
// run, or a new one.
func (r *Run) reconcile(recorded *Record) (*Record, error) {
	changes := changed(recorded, r.spec)
	if r.restarts(recorded, len(changes) > 0) {
		r.abandoned, r.replaced = recorded.InFlight, true
		fresh := newRecord(r.spec)
		fresh.Restarted = true
		return fresh, nil
	}
	if len(changes) == 0 {
		return recorded, nil
	}
	// The code of a run without completed iterations may change: nothing is lost.
	unstarted := recorded.Done == 0 && recorded.InFlight == nil
	if r.spec.OnChange != Continue && !unstarted {
		return nil, fmt.Errorf("%q: %s changed after %d of %d iterations: %w",
			r.spec.Name, strings.Join(changes, " and "), recorded.Done, recorded.N, ErrChanged)
	}
	switch {
	case recorded.Done >= r.spec.N: // nothing is left to run
		r.abandoned, recorded.InFlight = recorded.InFlight, nil
		if recorded.Done > r.spec.N {
			r.addNote("%d iterations were done; those from %d on no longer count, and their values were dropped", recorded.Done, r.spec.N)
		}
	case !unstarted:
		r.addNote("the run continues at iteration %d with the new %s; the iterations before still count", recorded.Done, strings.Join(changes, " and "))
	}
	recorded.adapt(r.spec)
	return recorded, nil
}

// adapt makes the record one of the requested run.
func (r *Record) adapt(s Spec) {
	if r.SetupSHA256 != hash(s.Setup) || r.LoopSHA256 != hash(s.Loop) {
		r.forgetCode()
	}
	r.N, r.SetupSHA256, r.LoopSHA256 = s.N, hash(s.Setup), hash(s.Loop)
	r.Status, r.Failure, r.FinishedAt = StatusRunning, nil, nil
}

// restarts reports whether Restart applies to this run. It does not apply to a run that was
// started by Restart and is unfinished: otherwise each further call with the same arguments
// would start the run again.
func (r *Run) restarts(recorded *Record, changed bool) bool {
	unfinished := recorded.Restarted && recorded.Status == StatusRunning
	return r.spec.OnChange == Restart && (changed || !unfinished)
}

// changed names the arguments that differ from the recorded run.
func changed(recorded *Record, s Spec) []string {
	var names []string
	for _, c := range []struct {
		name    string
		differs bool
	}{
		{"setup_code", recorded.SetupSHA256 != hash(s.Setup)},
		{"loop_code", recorded.LoopSHA256 != hash(s.Loop)},
		{"n_iterations", recorded.N != s.N},
	} {
		if c.differs {
			names = append(names, c.name)
		}
	}
	return names
}
