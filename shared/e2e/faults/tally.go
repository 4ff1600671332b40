package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts what happened, for the summary.
type tally struct {
	began time.Time

	mu       sync.Mutex
	counts   map[string]int
	kills    map[string]int
	faults   map[string]int
	refusals map[string]int
}

func newTally() *tally {
	return &tally{began: time.Now(), counts: map[string]int{}, kills: map[string]int{}, faults: map[string]int{}, refusals: map[string]int{}}
}

func (t *tally) add(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what] += n
}

func (t *tally) struck(f *fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[f.name]++
	if f.kills != "" {
		t.kills[f.kills]++
	}
}

func (t *tally) killed(process string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kills[process]++
}

func (t *tally) killsOf(process string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kills[process]
}

func (t *tally) refused(tool, code string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusals[tool+" "+code]++
}

// print writes the summary.
func (t *tally) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := 0
	for _, n := range t.kills {
		all += n
	}
	fmt.Fprintf(out, "%s in %.0f s\n", listed(t.counts), time.Since(t.began).Seconds())
	fmt.Fprintf(out, "%d kills: %s\n", all, listed(t.kills))
	fmt.Fprintf(out, "faults: %s\n", listed(t.faults))
	fmt.Fprintf(out, "errors that a fault excuses: %s\n", listed(t.refusals))
}

// listed is counts as text, in the order of their names.
func listed(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
