package chunked

import (
	"fmt"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// batchTime is how long the iterations of a batch should take together. The
// batch ends by itself about there, whatever its size: progress is then confirmed
// often, and a deadline never has to fit many slow iterations.
const batchTime = 30 * time.Second

// leastDeadline of a batch; one with slow iterations, or a slow set-up, gets
// slowFactor times the slowest so far.
const (
	leastDeadline = 5 * time.Minute
	slowFactor    = 10
)

// order is what a batch is told; chunked/loop.py of shared/kernelpy reads it.
type order struct {
	Key         string  `json:"key"`
	Setup       string  `json:"setup"`
	SetupSHA256 string  `json:"setup_sha256"`
	Loop        string  `json:"loop"`
	Lo          int64   `json:"lo"` // where to begin, unless the kernel knows better
	Hi          int64   `json:"hi"` // where to end at the latest
	Seconds     float64 `json:"seconds"`
	// OnNew is what to do in a kernel without the variables of the iterations done.
	OnNew onNew `json:"on_new"`
	// Analyse asks for what iterations carry, until that is known.
	Analyse bool `json:"analyse"`
}

// onNew is what a batch does where iterations are done and their variables are not there.
type onNew string

const (
	onNewStop     onNew = "stop"     // only tells so
	onNewPrepare  onNew = "prepare"  // runs the set-up and waits for the kept variables
	onNewContinue onNew = "continue" // runs the set-up and goes on without
)

// cell is the code of a batch. The same one gives the same text, as a submit that is
// repeated must.
func (r *Run) cell(f *Batch) string {
	call := kernelpy.Call{Function: "chunked.loop.run", Delivery: kernelpy.Display, Arguments: []any{order{
		Key: r.state.Key, Setup: r.spec.Setup, SetupSHA256: r.state.SetupSHA256, Loop: r.spec.Loop,
		Lo: f.Lo, Hi: f.Hi, Seconds: batchTime.Seconds(), OnNew: f.OnNew, Analyse: f.Analyse,
	}}}
	return fmt.Sprintf("# chunked run %q: iterations %d to %d of %d\n%s", r.spec.Name, f.Lo, f.Hi-1, r.spec.N, call.Code(f.WithPackage))
}

// deadline of the next batch, in seconds.
func (s *Record) deadline() float64 {
	d := max(leastDeadline.Seconds(), slowFactor*s.SlowestSeconds, slowFactor*s.SetupSeconds)
	return min(d, contract.MaxTimeout.Seconds())
}
