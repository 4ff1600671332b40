package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is something that a step survives. strike returns when it is over and mended; an
// error means that the suite itself failed.
type fault struct {
	name    string
	excuses excuses
	weight  int    // how often the plan chooses it, relative to the others
	kills   string // the process that it kills
	strike  func(ctx context.Context, w *world, p planned) (struck bool, err error)
}

// planned is a fault with what the plan chose for it.
type planned struct {
	fault *fault
	marks int           // it strikes when the step has left this many marks in the ledger,
	after time.Duration // or when the operations have ended, and then this much later
	lasts time.Duration // how long it lasts, if it does
	at    int           // number of the relay
	bytes int           // after which a connection breaks, if it does
	side  string        // of the network: upstream to the executor, downstream from it
}

func (p planned) String() string {
	return fmt.Sprintf("%s (%d marks, %d ms, for %d ms, %d, %d bytes %s)", p.fault.name, p.marks,
		p.after.Milliseconds(), p.lasts.Milliseconds(), p.at, p.bytes, p.side)
}

func planFault(r *rand.Rand, laptops int) planned {
	return planned{
		fault: &kinds[pick(r)],
		marks: r.IntN(6),
		after: time.Duration(r.IntN(300)) * time.Millisecond,
		lasts: time.Duration(r.IntN(1500)) * time.Millisecond,
		at:    r.IntN(laptops),
		bytes: 1 << r.IntN(18),
		side:  [...]string{"upstream", "downstream"}[r.IntN(2)],
	}
}

// pick returns the number of a kind.
func pick(r *rand.Rand) int {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	left := r.IntN(sum)
	for n, k := range kinds {
		if left -= k.weight; left < 0 {
			return n
		}
	}
	panic("the random number is above the sum of the weights")
}
