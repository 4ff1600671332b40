package chunked

import (
	"fmt"
	"strings"
)

// reconcile is the state to go on with, given what is kept and what is wanted.
func (r *Run) reconcile(kept *Record) (*Record, error) {
	changes := changed(kept, r.spec)
	if r.startsOver(kept, len(changes) > 0) {
		r.abandoned, r.stale = kept.InFlight, true
		fresh := newRecord(r.spec)
		fresh.Restarted = true
		return fresh, nil
	}
	if len(changes) == 0 {
		return kept, nil
	}
	// A run of which nothing is done is nobody's loss: its code may just be mended.
	unbegun := kept.Done == 0 && kept.InFlight == nil
	if r.spec.OnChange != Continue && !unbegun {
		return nil, fmt.Errorf("%q: %s changed after %d of %d iterations: %w",
			r.spec.Name, strings.Join(changes, " and "), kept.Done, kept.N, ErrChanged)
	}
	switch {
	case kept.Done >= r.spec.N: // nothing is left to run
		r.abandoned, kept.InFlight = kept.InFlight, nil
		if kept.Done > r.spec.N {
			r.note("%d iterations were done: those from %d on no longer count, and their values are dropped", kept.Done, r.spec.N)
		}
	case !unbegun:
		r.note("goes on at iteration %d with the new %s; the iterations before are kept", kept.Done, strings.Join(changes, " and "))
	}
	if kept.SetupSHA256 != hash(r.spec.Setup) || kept.LoopSHA256 != hash(r.spec.Loop) {
		kept.newCode()
	}
	kept.N, kept.SetupSHA256, kept.LoopSHA256 = r.spec.N, hash(r.spec.Setup), hash(r.spec.Loop)
	kept.Status, kept.Failure, kept.FinishedAt = StatusRunning, nil, nil
	return kept, nil
}

// startsOver reports whether Restart means this run: not when it was begun by a
// restart and is under way, or each further call with the same arguments would
// begin it again.
func (r *Run) startsOver(kept *Record, changed bool) bool {
	underWay := kept.Restarted && kept.Status == StatusRunning
	return r.spec.OnChange == Restart && (changed || !underWay)
}

// changed names what differs.
func changed(kept *Record, s Spec) []string {
	var names []string
	for _, c := range []struct {
		name    string
		differs bool
	}{
		{"setup_code", kept.SetupSHA256 != hash(s.Setup)},
		{"loop_code", kept.LoopSHA256 != hash(s.Loop)},
		{"n_iterations", kept.N != s.N},
	} {
		if c.differs {
			names = append(names, c.name)
		}
	}
	return names
}
