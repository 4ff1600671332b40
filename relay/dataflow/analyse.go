package dataflow

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"colabrelay/relay/kernelcall"
	"colabrelay/relay/plain"
	"colabrelay/shared/kernelpy"
)

// VM is what Analyse needs of a *client.Client.
type VM = kernelcall.VM

// Bounds of an analysis.
const (
	MaxCells = 10_000
	MaxChars = 4 << 20 // of all sources, in characters; beyond, nothing is known of any cell

	maxWait    = time.Minute      // for the kernel to become free and to answer, if ctx allows more
	limit      = 40 * time.Second // on the VM; facts.py stops after half of it
	maxReport  = 4 << 20
	maxNames   = 5_000 // in one list
	maxNameLen = 800   // bytes of one name
)

const mime = "application/vnd.colab-relay.cells+json"

// maxItems bounds the lists and maps of the answer.
var maxItems = map[string]int{
	"reads": maxNames, "may_store": maxNames, "changes": maxNames, "methods": maxNames, "stores": maxNames,
	"imports": maxNames, "functions": maxNames, "origins": maxNames, "calls": maxNames, "bound": maxNames,
	"passed": maxNames, "same": maxNames, "called": maxNames, "page_calls": maxNames, "accelerators": 10,
}

// Analyse returns the facts of each source, in their order. They are read in the kernel, which
// must become free before ctx ends or a minute has passed; the sources are parsed and not run.
// After an error nothing is known of any cell.
func Analyse(ctx context.Context, vm VM, sources []string) ([]Facts, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	if len(sources) > MaxCells {
		return nil, fmt.Errorf("which cells depend on which is found out for %d cells at most", MaxCells)
	}
	call := kernelpy.Call{Function: "cells.facts.of_packed", Arguments: []any{packed(sources)}, MIME: mime}
	report, _, err := kernelcall.Ask(ctx, vm, call, kernelcall.Options{
		Until: until(ctx), Limit: limit, MaxReport: maxReport, MaxItems: maxItems,
	})
	if err != nil {
		return nil, fmt.Errorf("finding out which cells depend on which: %w", err)
	}
	facts, err := decode(report, len(sources))
	if err != nil {
		return nil, fmt.Errorf("finding out which cells depend on which: %w", err)
	}
	return facts, nil
}

// until is when the call must have ended: before ctx ends, so that it is withdrawn in time.
func until(ctx context.Context) time.Time {
	latest := time.Now().Add(maxWait)
	if end, ok := ctx.Deadline(); ok && end.Before(latest) {
		return end.Add(-time.Until(end) / 20)
	}
	return latest
}

func packed(sources []string) string {
	text, err := json.Marshal(sources)
	if err != nil {
		panic(err) // strings only
	}
	return kernelpy.Packed(string(text))
}

// decode reads the answer for n sources, which any code in the kernel may have made.
func decode(report json.RawMessage, n int) ([]Facts, error) {
	var facts []Facts
	if err := json.Unmarshal(report, &facts); err != nil {
		return nil, fmt.Errorf("the kernel's answer can't be read: %w", err)
	}
	if len(facts) != n {
		return nil, fmt.Errorf("the kernel's answer is about %d cells and not %d", len(facts), n)
	}
	for i := range facts {
		facts[i].check()
	}
	return facts, nil
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check drops facts that Python can't have found.
func (f *Facts) check() {
	if !digestForm.MatchString(f.Digest) {
		f.Digest = ""
	}
	f.Problem = plain.Line(f.Problem)
	f.Passing = f.Passing && f.Problem != ""
	if f.Problem == "" && f.Digest == "" || !f.namesAreSafe() {
		f.Problem = "the kernel's answer about the cell can't be read"
	}
	if f.Problem != "" {
		*f = Facts{Digest: f.Digest, Problem: f.Problem, Passing: f.Passing}
	}
}

// namesAreSafe reports whether all names may be shown as they are.
func (f *Facts) namesAreSafe() bool {
	lists := [][]string{f.Stores, f.Imports, f.PageCalls, f.Accelerators}
	lists = append(lists, f.Use.lists()...)
	for name, function := range f.Functions {
		lists = append(append(lists, []string{name}), function.lists()...)
	}
	for name, o := range f.Origins {
		lists = append(lists, []string{name}, o.Same, o.Passed, o.Called)
	}
	for _, list := range lists {
		for _, name := range list {
			if name == "" || len(name) > maxNameLen || plain.Line(name) != name || strings.ContainsAny(name, " \"'`") {
				return false
			}
		}
	}
	return true
}

func (u *Use) lists() [][]string {
	lists := [][]string{u.Reads, u.MayStore, u.Changes, u.Methods}
	for name, call := range u.Calls {
		lists = append(lists, []string{name}, call.Bound, call.Passed)
	}
	return lists
}
