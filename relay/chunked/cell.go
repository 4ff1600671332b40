package chunked

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

//go:embed cell.py
var cellPy string

//go:embed load.py
var loadPy string

//go:embed body.py
var bodyPy string

//go:embed values.py
var valuesPy string

//go:embed result.py
var resultPy string

//go:embed markers.py
var markersPy string

//go:embed exits.py
var exitsPy string

//go:embed loop.py
var loopPy string

// sources are the modules that run in the kernel, each before those that import it.
var sources = [][2]string{
	{"body", bodyPy}, {"values", valuesPy}, {"result", resultPy}, {"markers", markersPy}, {"exits", exitsPy}, {"loop", loopPy},
}

// analysis are the modules that tell what iterations carry. They are sent until that is
// known: to load them takes the kernel some milliseconds.
var analysis = kernelpy.Sources("scope", "calls", "dependence", "live")

// order is what a batch is told; loop.py reads it.
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
	spec := literal(order{
		Key: r.state.Key, Setup: r.spec.Setup, SetupSHA256: r.state.SetupSHA256, Loop: r.spec.Loop,
		Lo: f.Lo, Hi: f.Hi, Seconds: batchTime.Seconds(), OnNew: f.OnNew,
	})
	needed := sources
	if f.Analyse {
		needed = slices.Concat(analysis, sources)
	}
	body := strings.NewReplacer(
		"LOAD", literal(loadPy),
		"SOURCES", literal(needed),
		"SPEC", literal(spec),
	).Replace(code(cellPy))
	return fmt.Sprintf("# chunked run %q: iterations %d to %d of %d\n%s", r.spec.Name, f.Lo, f.Hi-1, r.spec.N, body)
}

// code is Python without the comment at its head.
func code(python string) string {
	for strings.HasPrefix(python, "#") {
		_, python, _ = strings.Cut(python, "\n")
	}
	return python
}

// literal is v as a Python literal: JSON of strings and lists of them is one too,
// as long as characters beyond the basic plane stand as they are, which is how
// encoding/json writes them.
func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return string(b)
}

// deadline of the next batch, in seconds.
func (s *Record) deadline() float64 {
	d := max(leastDeadline.Seconds(), slowFactor*s.SlowestSeconds, slowFactor*s.SetupSeconds)
	return min(d, contract.MaxTimeout.Seconds())
}
