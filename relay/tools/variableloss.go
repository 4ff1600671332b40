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
)

// codeVariablesLost: a chunked run has not the variables that its iterations build on.
const codeVariablesLost = string(chunked.StatusVariablesLost)

// maxStatesNamed bounds the saved states that a warning names.
const maxStatesNamed = 5

// Keep bounds what the relay keeps of chunked runs by itself.
type Keep struct {
	Every       time.Duration // between two times
	Percent     float64       // of the run's time
	MaxBytes    int64         // each time
	TunnelBytes int64         // of a run in all, through a tunnel
}

// keepBounds are those for the runtime of the call.
func (c *call) keepBounds() chunked.KeepBounds {
	k := c.cfg.Keep
	b := chunked.KeepBounds{Every: k.Every, Share: k.Percent / 100, MaxBytes: k.MaxBytes}
	if !isLoopback(c.target.URL) {
		b.RunBytes = k.TunnelBytes
	}
	if b.MaxBytes > 0 && !isLoopback(c.target.URL) && k.TunnelBytes == 0 {
		b.MaxBytes = 0 // nothing may go through a tunnel
	}
	return b
}

// isLoopback reports whether an address is on this computer: its traffic counts nowhere.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// savedStates names the states that users saved and that fit, newest first; empty for none.
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

// afterLoss is what a warning of a new kernel says of saved states.
func (c *call) afterLoss() string {
	names := c.savedStates(func(kernelstate.Manifest) bool { return true })
	if names == "" {
		return "Run the set-up code again."
	}
	return "Call restore_kernel_state to bring back a saved state (" + names + "), or run the set-up code again."
}

// warnLost warns, in the answer's first line, of a chunked run that stopped without its
// variables, and names the saved states that hold them.
func (c *call) warnLost(s *chunked.Record, o chunked.Outcome) {
	if o.Stop == nil || o.Stop.Lost == nil {
		return
	}
	saved := c.savedStates(func(m kernelstate.Manifest) bool { return holds(m, s, o.Stop.Lost) })
	if saved == "" {
		saved = "No saved state of this runtime holds them: use on_new_kernel=\"restart\" or \"continue\"."
	} else {
		saved = "Saved states that hold them: " + saved + ". Call restore_kernel_state with one, then this call again; or use on_new_kernel=\"restart\" or \"continue\"."
	}
	c.warn("The kernel is a new one without the variables that iterations 0 to %d left: %s. Nothing was run. %s", s.Done-1, o.Stop.Lost.Description, saved)
}

// holds reports whether a saved state has the run's variables. It may have more iterations
// than were confirmed here: those of a batch that was under way.
func holds(m kernelstate.Manifest, s *chunked.Record, lost *chunked.LostVariables) bool {
	mine := slices.ContainsFunc(m.Runs, func(r kernelstate.RunProgress) bool { return r.Key == s.Key })
	return mine && !slices.ContainsFunc(m.Skipped, func(l kernelstate.Omission) bool { return slices.Contains(lost.Names, l.Name) })
}

// variablesLost is the error of a run that stopped without its variables.
func (r *Chunked) variablesLost(lost *chunked.LostVariables) *Problem {
	return &Problem{
		Code:    codeVariablesLost,
		Message: fmt.Sprintf("the kernel lacks what %d iterations left in %s, and this computer has no copy: %s", r.Completed, lost.Description, lost.Reason),
		Hint: "If the warning names a saved state, call restore_kernel_state and then this again. Else call again with on_new_kernel=\"restart\" to begin at iteration 0, or with on_new_kernel=\"continue\" " +
			"if iterations do not need each other: then it goes on with what setup_code makes, and a value that is added up lacks the iterations before.",
	}
}
