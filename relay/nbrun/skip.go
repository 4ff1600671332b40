package nbrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/kernelcall"
	"colabrelay/shared/kernelpy"
)

// Facts are the names of one cell, as the kernel's Python reads its code without running it.
type Facts struct {
	Reads []string `json:"reads,omitempty"`
	// Makes are bound, or mentioned in a call or in an assignment to an attribute or an item: their
	// values may change. Modules, functions and classes change by being bound only.
	Makes []string `json:"makes,omitempty"`
	// Sure are bound by every run that succeeds: what earlier cells made of them no longer matters.
	Sure []string `json:"sure,omitempty"`
}

// Bounds of the facts of a notebook.
const (
	factsLimit  = 40 * time.Second // on the VM
	factsReport = 4 << 20          // bytes
	maxFactName = 200              // bytes of a name
	maxFacts    = 2000             // of each list of names of one cell
	factsMIME   = "application/vnd.colab-relay.cells+json"
)

// linkCells derives from the facts which cells each planned cell needs. Of a cell without facts
// nothing is known: it needs none, and none needs it.
func (a *advance) linkCells() map[string][]Because {
	if a.spec.OnError != SkipDependants || a.run.Facts == nil {
		return map[string][]Because{}
	}
	var cells []named
	for i := range a.run.Plan {
		c := &a.run.Plan[i]
		now := a.view.byHandle[c.Handle]
		if now == nil || c.Why != "" {
			continue
		}
		facts, read := a.run.Facts[now.sent]
		if !read {
			a.addNote("cell %d (id %s) is new or was edited during the run: which cells need it is not known, so none is skipped for it", c.Index, c.Handle)
		}
		cells = append(cells, named{c.Handle, facts, now.has(tagExpectFailure), now.has(tagForce)})
	}
	return needsOf(cells)
}

// named is a cell with its names.
type named struct {
	handle    string
	facts     Facts
	tolerated bool // its failure is expected, and nothing is skipped for it
	forced    bool // it is not skipped
}

// needsOf returns which cells each cell needs: those before it that make a name which it reads, back
// to the last cell that certainly binds it, or is itself skipped for those before it. A cell that
// one of these needs is needed through it.
func needsOf(cells []named) map[string][]Because {
	makers := map[string][]string{} // by name: the cells that make its value
	all := map[string][]Because{}
	for _, c := range cells {
		reads := map[string]bool{}
		for _, name := range c.facts.Reads {
			reads[name] = true
			for _, maker := range makers[name] {
				all[c.handle] = addName(all[c.handle], maker, name)
			}
		}
		if c.tolerated {
			continue
		}
		for _, name := range c.facts.Sure {
			delete(makers, name)
		}
		for _, name := range c.facts.Makes {
			if reads[name] && !c.forced {
				delete(makers, name)
			}
			makers[name] = append(makers[name], c.handle)
		}
	}
	return all
}

// addName adds a name that a cell makes to what is needed.
func addName(needs []Because, maker, name string) []Because {
	at := slices.IndexFunc(needs, func(b Because) bool { return b.Cell == maker })
	if at < 0 {
		return append(needs, Because{maker, []string{shorten(name, maxFactName)}})
	}
	if b := &needs[at]; len(b.Names) < maxLacking {
		b.Names = append(b.Names, shorten(name, maxFactName))
	}
	return needs
}

// split returns the steps in a job that a cell needs, and which of the cells that it needs did not
// succeed before.
func (a *advance) split(c *CellRecord, inJob map[int]string) (steps []string, lacking []Because) {
	for _, b := range a.needs[c.Handle] {
		before := a.run.cell(b.Cell)
		switch {
		case before == nil:
		case inJob[before.Key] != "":
			steps = append(steps, inJob[before.Key])
		case (before.Status.Failed() || before.Status == CellSkipped) && len(lacking) < maxBecause:
			lacking = append(lacking, b)
		}
	}
	return steps, lacking
}

// readFacts asks the kernel for the names of all cells, in one call before the first job is sent, if
// on_error asks for that.
func (a *advance) readFacts(ctx context.Context) error {
	if a.spec.OnError != SkipDependants || a.run.Facts != nil {
		return nil
	}
	codes := map[string]string{} // by their digests
	for _, c := range a.view.cells {
		if a.run.cell(c.handle) != nil {
			codes[c.sent] = c.code
		}
	}
	facts, err := askFacts(ctx, a.vm, codes, a.opt.Until)
	if _, late := errors.AsType[*kernelcall.LateError](err); late {
		a.addNote("the kernel is busy, and must find out which cells depend on which before the run can begin")
		return errEnough
	}
	if err != nil {
		return fmt.Errorf("finding out which cells depend on which, as on_error=%q asks (the same call tries again; other values of on_error need no such answer): %w", a.spec.OnError, err)
	}
	a.run.Facts = facts
	return nil
}

// askFacts asks the kernel for the names in each of the codes.
func askFacts(ctx context.Context, vm VM, codes map[string]string, until time.Time) (map[string]Facts, error) {
	text, err := json.Marshal(codes)
	if err != nil {
		return nil, err
	}
	call := kernelpy.Call{Function: "cells.facts.of_packed", Arguments: []any{kernelpy.Packed(string(text))}, MIME: factsMIME}
	report, _, err := kernelcall.Ask(ctx, vm, call, kernelcall.Options{
		Until: until, Limit: factsLimit, MaxReport: factsReport,
		MaxItems: map[string]int{"reads": maxFacts, "makes": maxFacts, "sure": maxFacts, "": max(len(codes), maxFacts)},
	})
	if err != nil {
		return nil, err
	}
	var facts map[string]Facts
	if err := json.Unmarshal(report, &facts); err != nil || len(facts) != len(codes) {
		return nil, fmt.Errorf("the kernel's answer does not fit the %d cells that it was asked about", len(codes))
	}
	return facts, nil
}
