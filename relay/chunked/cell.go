package chunked

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"colabrelay/shared/contract"
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

// order is what a batch is told; loop.py reads it.
type order struct {
	Key         string  `json:"key"`
	Setup       string  `json:"setup"`
	SetupSHA256 string  `json:"setup_sha256"`
	Loop        string  `json:"loop"`
	Lo          int64   `json:"lo"` // where to begin, unless the kernel knows better
	Hi          int64   `json:"hi"` // where to end at the latest
	Seconds     float64 `json:"seconds"`
}

// cell is the code of the batch lo to hi-1. The same batch gives the same text, as
// a submit that is repeated must.
func (r *Run) cell(lo, hi int64) string {
	spec := literal(order{
		Key: r.state.Key, Setup: r.spec.Setup, SetupSHA256: r.state.SetupSHA256, Loop: r.spec.Loop,
		Lo: lo, Hi: hi, Seconds: batchTime.Seconds(),
	})
	body := strings.NewReplacer(
		"LOAD", literal(loadPy),
		"SOURCES", literal(sources),
		"SPEC", literal(spec),
	).Replace(code(cellPy))
	return fmt.Sprintf("# chunked run %q: iterations %d to %d of %d\n%s", r.spec.Name, lo, hi-1, r.spec.N, body)
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
func (s *State) deadline() float64 {
	d := max(leastDeadline.Seconds(), slowFactor*s.SlowestSeconds, slowFactor*s.SetupSeconds)
	return min(d, contract.MaxTimeout.Seconds())
}
