package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
)

// report prints the checks as they end and counts them for the table.
type report struct {
	mu             sync.Mutex
	titles         []string
	passed, failed map[string]int
}

// check prints the outcome of one check; nil means that it passed.
func (r *report) check(host, name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passed == nil {
		r.passed, r.failed = map[string]int{}, map[string]int{}
	}
	if !slices.Contains(r.titles, host) {
		r.titles = append(r.titles, host)
	}
	if err != nil {
		r.failed[host]++
		fmt.Printf("FAIL  %s: %s: %v\n", host, name, err)
		return
	}
	r.passed[host]++
	fmt.Printf("ok    %s: %s\n", host, name)
}

// must prints why a part ended early, if it did.
func (r *report) must(err error) {
	if err != nil {
		r.check("make hosts", "all parts done", err)
	}
}

// finish prints the table. It returns an error if a check failed or none was made.
func (r *report) finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "host\tpassed\tfailed")
	failed := 0
	for _, title := range r.titles {
		failed += r.failed[title]
		fmt.Fprintf(table, "%s\t%d\t%d\n", title, r.passed[title], r.failed[title])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case failed > 0:
		return errors.New("some checks failed: see the lines with FAIL above")
	case len(r.titles) == 0:
		return errors.New("no check was made")
	}
	return nil
}
