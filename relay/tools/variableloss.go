package tools

import (
	"fmt"
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

// Keep bounds the variables of chunked runs that the relay saves automatically.
type Keep struct {
	Every       time.Duration // least time between two saves
	Percent     float64       // of the run's time, for all saves
	MaxBytes    int64         // of one save
	TunnelBytes int64         // of all saves of a run, through a tunnel
}

// keepBounds returns the bounds for the runtime of the call.
func (c *call) keepBounds() chunked.KeepBounds {
	k := c.cfg.Keep
	b := chunked.KeepBounds{Every: k.Every, Share: k.Percent / 100, MaxBytes: k.MaxBytes}
	if !isLoopback(c.target.URL) {
		b.RunBytes = k.TunnelBytes
	}
	if b.MaxBytes > 0 && !isLoopback(c.target.URL) && k.TunnelBytes == 0 {
		b.MaxBytes = 0 // nothing may be sent through a tunnel
	}
	return b
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
	if o.Stop == nil || o.Stop.Lost == nil {
		return
	}
	saved := c.savedStates(func(m kernelstate.Manifest) bool { return contains(m, s, o.Stop.Lost) })
	if saved == "" {
		saved = "No saved state of this runtime contains them: use on_new_kernel=\"restart\" or \"continue\"."
	} else {
		saved = "Saved states that contain them: " + saved + ". Call restore_kernel_state with one, then this call again; or use on_new_kernel=\"restart\" or \"continue\"."
	}
	c.warn("This kernel is new and does not have the variables that iterations 0 to %d assigned: %s. Nothing was run. %s", s.Done-1, o.Stop.Lost.Description, saved)
}

// contains reports whether a saved state has the run's variables. It may have more iterations
// than were confirmed here: those of a batch that was running.
func contains(m kernelstate.Manifest, s *chunked.Record, lost *chunked.LostVariables) bool {
	mine := slices.ContainsFunc(m.Runs, func(r kernelstate.RunProgress) bool { return r.Key == s.Key })
	return mine && !slices.ContainsFunc(m.Skipped, func(l kernelstate.Omission) bool { return slices.Contains(lost.Names, l.Name) })
}

// variablesLost returns the error of a run that stopped without its variables.
func (r *Chunked) variablesLost(lost *chunked.LostVariables) *Problem {
	return &Problem{
		Code:    string(chunked.StatusVariablesLost),
		Message: fmt.Sprintf("the kernel lacks what %s left in %s, and this computer has no copy: %s", plain.Count(r.Completed, "iteration"), lost.Description, lost.Reason),
		Hint: "If the warning names a saved state, call restore_kernel_state and then this again. Otherwise call again with on_new_kernel=\"restart\" to start at iteration 0, or with on_new_kernel=\"continue\" " +
			"if iterations do not depend on each other: then it continues with what setup_code creates, and a value that is added up lacks the earlier iterations.",
	}
}
