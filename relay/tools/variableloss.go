package tools

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/plain"
)

// maxStatesNamed bounds the saved states that a warning lists.
const maxStatesNamed = 5

// keepBounds returns the bounds for the runtime of the call.
func (c *call) keepBounds() chunked.Keep {
	keep := c.cfg.Keep
	if isLoopback(c.target.URL) {
		keep.TunnelBytes = math.MaxInt64 // there is no tunnel
	}
	return keep
}

// isLoopback reports whether an address is on this computer, so that traffic costs nothing.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// savedStates lists the states that users saved and that fit accepts, newest first; empty if
// there are none.
func (c *call) savedStates(fits func(kernelstate.Manifest) bool) string {
	var names []string
	for _, m := range kernelstate.States(c.cfg.CheckpointDir, c.target.Name) {
		if fits(m) {
			names = append(names, fmt.Sprintf("%q of %s", clipName(m.Name), m.Created.UTC().Format(time.RFC3339)))
		}
	}
	if more := len(names) - maxStatesNamed; more > 0 {
		names = append(names[:maxStatesNamed], fmt.Sprintf("and %d older", more))
	}
	return strings.Join(names, ", ")
}

// afterLoss returns the part of a new kernel's warning that says what to do.
func (c *call) afterLoss() string {
	names := c.savedStates(func(kernelstate.Manifest) bool { return true })
	if names == "" {
		return "Run the setup code again."
	}
	return "Call restore_kernel_state to restore a saved state (" + names + "), or run the setup code again."
}

// warnLost warns, in the answer's first line, that a chunked run stopped without its
// variables, and lists the saved states that contain them.
func (c *call) warnLost(s *chunked.Record, o chunked.Outcome) {
	if o.Stop == nil || s.Status != chunked.StatusVariablesLost || s.Failure == nil {
		return
	}
	saved := c.savedStates(func(m kernelstate.Manifest) bool { return contains(m, s) })
	if saved == "" {
		saved = "No saved state of this runtime contains them."
	} else {
		saved = "Saved states that contain them: " + saved + "."
	}
	c.warn("This kernel is new and does not have the variables that iterations 0 to %d assigned: %s. Nothing was run. %s", s.Done-1, chunked.List(s.Failure.Variables), saved)
}

// contains reports whether a saved state has the run's variables. It may have more iterations
// than were confirmed here: those of a round that was running.
func contains(m kernelstate.Manifest, s *chunked.Record) bool {
	mine := slices.ContainsFunc(m.Runs, func(r kernelstate.RunProgress) bool { return r.Key == s.Key })
	return mine && !slices.ContainsFunc(m.Skipped, func(l kernelstate.Omission) bool { return slices.Contains(s.Failure.Variables, l.Name) })
}

// asks returns the error of a run that stopped to ask.
func (r *Chunked) asks() *Problem {
	f := r.failure
	names := chunked.List(f.Variables)
	p := &Problem{Code: r.Status}
	switch chunked.Status(r.Status) {
	case chunked.StatusVariablesLost:
		p.Message = fmt.Sprintf("the kernel lacks what %s left in %s, and %s", plain.Count(r.Completed, "iteration"), names, noCopy(f))
		p.Hint = "If the warning names a saved state, call restore_kernel_state and then this again. Otherwise call again with on_change=\"restart\" and the code to start at iteration 0; with independent=true " +
			"if no iteration needs what another one left; or with on_stop=\"continue\": it goes on with what setup_code makes, and a value that is added up lacks the earlier iterations."
	case chunked.StatusVariablesChanged:
		p.Message = fmt.Sprintf("other code changed %s since the last round, so nothing more was run", names)
		p.Hint = "Call again with on_stop=\"accept\" to go on with the values as they are now, or with on_stop=\"restore\" to go back to the copy that the run kept; the answer then says which iterations run again."
	default:
		p.Message = fmt.Sprintf("iteration %d did not end, and may have changed %s", r.Completed, names)
		p.Hint = incompleteHint(f)
	}
	return p
}

// noCopy says why the variables are not restored from a copy.
func noCopy(f *chunked.Failure) string {
	if f.Detail != "" {
		return "the copy that was kept could not be loaded: " + plain.Quote(f.Detail) + ". If classes or functions of other code are missing, run that code again, then call again"
	}
	return "there is no copy that has it all"
}

// incompleteHint says how a run goes on after an iteration that changed something and did not end.
func incompleteHint(f *chunked.Failure) string {
	return fmt.Sprintf("It may have changed %s. Call again, if needed with corrected code and on_change=\"continue\", and with on_stop=\"again\" to run it again on the changed values, "+
		"\"skip\" to count it as done, or \"restore\" to go back to the copy that the run kept and repeat the iterations since then.", chunked.List(f.Variables))
}
