package harness

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
)

// Report prints the checks as they end and counts them for the table.
type Report struct {
	mu             sync.Mutex
	titles         []string
	passed, failed map[string]int
}

// Check prints the outcome of one check; nil means that it passed.
func (r *Report) Check(host, name string, err error) {
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

// Finish prints the table. It returns an error if a check failed or none was made.
func (r *Report) Finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "checked\tpassed\tfailed")
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
