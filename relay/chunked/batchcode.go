package chunked

import (
	"fmt"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// batchTime is how long the iterations of a batch should take together. A batch ends at
// about that time, whatever its size, so that progress is confirmed often and the deadline
// does not depend on the number of iterations.
const batchTime = 30 * time.Second

// A batch's deadline is slowFactor times the slowest iteration or setup up to now, and at
// least minDeadline.
const (
	minDeadline = 5 * time.Minute
	slowFactor  = 10
)

// order is the argument of a batch for chunked/loop.py in shared/kernelpy.
type order struct {
	Key         string          `json:"key"`
	Setup       string          `json:"setup"`
	SetupSHA256 string          `json:"setup_sha256"`
	Loop        string          `json:"loop"`
	Lo          int64           `json:"lo"` // the first iteration in a new kernel; see registry.py in shared/kernelpy
	Hi          int64           `json:"hi"` // the end, exclusive
	Seconds     float64         `json:"seconds"`
	Policy      newKernelPolicy `json:"on_new"`
	Analyse     bool            `json:"analyse"` // report the variables that iterations pass on
}

// newKernelPolicy is what a batch does if iterations are done and the kernel lacks their
// variables.
type newKernelPolicy string

const (
	policyStop     newKernelPolicy = "stop"     // report that and run nothing
	policyPrepare  newKernelPolicy = "prepare"  // run the setup code and wait for the kept variables
	policyContinue newKernelPolicy = "continue" // run the setup code and the iterations
)

// batchCode returns the code of a batch. The same batch always has the same text, because a
// repeated submit must not differ.
func (r *Run) batchCode(b *Batch) string {
	call := kernelpy.Call{Function: "chunked.loop.run", Delivery: kernelpy.Display, Arguments: []any{order{
		Key: r.record.Key, Setup: r.spec.Setup, SetupSHA256: r.record.SetupSHA256, Loop: r.spec.Loop,
		Lo: b.Lo, Hi: b.Hi, Seconds: batchTime.Seconds(), Policy: b.Policy, Analyse: b.Analyse,
	}}}
	return fmt.Sprintf("# chunked run %q: iterations %d to %d of %d\n%s", r.spec.Name, b.Lo, b.Hi-1, r.spec.N, call.Code(b.WithPackage))
}

// deadline is the next batch's deadline in seconds.
func (r *Record) deadline() float64 {
	d := max(minDeadline.Seconds(), slowFactor*r.SlowestSeconds, slowFactor*r.SetupSeconds)
	return min(d, contract.MaxTimeout.Seconds())
}
