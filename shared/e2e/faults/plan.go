package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// step is what happens at the same time: operations on the laptops, and faults.
type step struct {
	number     int
	operations []placed
	faults     []planned
}

// placed is an operation with the number of its laptop.
type placed struct {
	operation
	laptop int
}

// plan returns a step, which follows from the seed and its number alone.
func plan(seed uint64, number, laptops int) step {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	s := step{number: number}
	for n := range 1 + r.IntN(3) {
		make := operations[r.IntN(len(operations))]
		s.operations = append(s.operations, placed{make(r, fmt.Sprintf("s%do%d", number, n)), r.IntN(laptops)})
	}
	for range [...]int{0, 1, 2, 3, 3, 4}[r.IntN(6)] {
		s.faults = append(s.faults, planFault(r, laptops))
	}
	return s
}

// excuses are those of all faults of the step.
func (s step) excuses() (e excuses) {
	for _, f := range s.faults {
		e |= f.fault.excuses
	}
	return e
}

// excusesOn are those that concern a laptop: what ends, stops or fills another laptop is none.
func (s step) excusesOn(laptop int) (e excuses) {
	for _, f := range s.faults {
		if of := f.fault.excuses; of&^(relayEnds|relayStops|laptopDiskFull) != 0 || f.at == laptop {
			e |= of
		}
	}
	return e
}

// String is the step in one line.
func (s step) String() string {
	var parts []string
	for _, o := range s.operations {
		parts = append(parts, fmt.Sprintf("%s on %d", o.operation, o.laptop))
	}
	line := fmt.Sprintf("step %d: %s", s.number, strings.Join(parts, ", "))
	for _, f := range s.faults {
		line += "; " + f.String()
	}
	return line
}
