package tools

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/chunked"
	"colabrelay/relay/kernelstate"
)

// maxStatesNamed bounds the saved states that a warning lists.
const maxStatesNamed = 5

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
