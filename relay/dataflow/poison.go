package dataflow

import (
	"maps"
	"slices"
)

// Outcome is how a cell ended, as far as names are concerned.
type Outcome int

// Outcomes.
const (
	Succeeded Outcome = iota
	// Failed: it failed, was interrupted or timed out, or was skipped.
	Failed
	// Tolerated: it failed, and later cells are to run all the same, as after a cell with the
	// tag raises-exception.
	Tolerated
)

// Because is a reason to skip a cell.
type Because struct {
	Cell string `json:"cell"` // the cell that failed or was skipped
	// Names are what it may have left undone and the skipped cell reads; sorted. Without any,
	// the cells can't be told apart: one of them may read or write everything.
	Names []string `json:"names,omitempty"`
}

// Poison follows the names that failed and skipped cells should have written. The zero value
// is ready.
//
// Add gets every cell of the notebook in its order, also those that ran in earlier calls and
// those that are not selected but ran before in this kernel, because they define functions.
type Poison struct {
	scope scope
	names map[string]string // by name: the cell that poisoned it
	cells []string          // those that poisoned names, in order
	all   string            // the first cell that poisoned everything
	any   bool              // all is set; a cell's name may be empty
}

// Skips returns why a cell must not run, in the order of the cells that are to blame; empty if
// it may. facts is nil if nothing is known of the cell.
func (p *Poison) Skips(facts *Facts) []Because {
	switch {
	case p.any:
		return []Because{{Cell: p.all}}
	case len(p.names) == 0:
		return nil
	}
	x := p.scope.resolve(facts)
	if x.opaqueRead {
		return p.because(func(string) bool { return true }, false)
	}
	return p.because(x.reads.has, true)
}

// because lists the cells that poisoned the names for which reads is true.
func (p *Poison) because(reads func(name string) bool, named bool) []Because {
	found := map[string][]string{}
	for name, cell := range p.names {
		if reads(name) {
			found[cell] = append(found[cell], name)
		}
	}
	var all []Because
	for _, cell := range p.cells {
		names, ok := found[cell]
		if !ok {
			continue
		}
		delete(found, cell)
		if slices.Sort(names); !named {
			names = nil
		}
		all = append(all, Because{cell, names})
	}
	return all
}

// Add records how a cell ended.
func (p *Poison) Add(cell string, facts *Facts, outcome Outcome) {
	x := p.scope.resolve(facts)
	switch {
	case outcome == Failed && x.opaqueWrite && !p.any:
		p.all, p.any = cell, true
	case outcome == Failed:
		p.poison(cell, x)
	case outcome == Succeeded && facts.known():
		maps.DeleteFunc(p.names, func(name, _ string) bool { return slices.Contains(facts.Stores, name) })
	}
	p.scope.apply(facts, outcome == Succeeded)
}

func (p *Poison) poison(cell string, x effect) {
	if p.names == nil {
		p.names = map[string]string{}
	}
	p.cells = append(p.cells, cell)
	x.writes(func(name string) { p.names[name] = cell })
}
