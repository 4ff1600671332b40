package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// expectation is how often a run must have taken place.
type expectation int

const (
	atMostOnce expectation = iota // its answer is unknown, or it was interrupted
	once                          // an answer says that it took place
	never                         // it was refused
)

// runs are all runs that relays asked for. Each run appends its id to a file on the VM before
// it does anything else. It is safe for concurrent use.
type runs struct {
	path string // of that file

	mu  sync.Mutex
	all map[string]expectation
}

// expect notes what an answer says about the run id.
func (r *runs) expect(id string, e expectation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]expectation{}
	}
	r.all[id] = e
}

// check compares the file with what the answers said. It returns how many runs took place.
func (r *runs) check() (int, error) {
	text, err := os.ReadFile(r.path)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ran := map[string]int{}
	for id := range strings.Lines(string(text)) {
		ran[strings.TrimSuffix(id, "\n")]++
	}
	var wrong []string
	for id, times := range ran {
		if _, known := r.all[id]; !known {
			wrong = append(wrong, fmt.Sprintf("%q ran, but no relay asked for it", id))
		} else if times > 1 {
			wrong = append(wrong, fmt.Sprintf("%q ran %d times", id, times))
		}
	}
	for id, e := range r.all {
		switch {
		case e == once && ran[id] == 0:
			wrong = append(wrong, fmt.Sprintf("%q did not run although its answer says so", id))
		case e == never && ran[id] > 0:
			wrong = append(wrong, fmt.Sprintf("%q ran although it was refused", id))
		}
	}
	if len(wrong) > 0 {
		return len(ran), fmt.Errorf("%d contradictions: %s", len(wrong), strings.Join(wrong[:min(len(wrong), 5)], "; "))
	}
	return len(ran), nil
}
