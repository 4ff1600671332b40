package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
)

// report prints the checks as they end and keeps them for the table.
type report struct {
	clients []string
	checks  map[string]*tally
}

type tally struct{ passed, failed, expected int }

// check prints the outcome of one check; nil means that it passed.
func (r *report) check(client, name string, err error) {
	t := r.tally(client)
	if err != nil {
		t.failed++
		fmt.Printf("FAIL  %s: %s: %v\n", client, name, err)
		return
	}
	t.passed++
	fmt.Printf("ok    %s: %s\n", client, name)
}

// expect prints a failure that is known.
func (r *report) expect(client, name string) {
	r.tally(client).expected++
	fmt.Printf("known %s: %s\n", client, name)
}

func (r *report) tally(client string) *tally {
	if r.checks == nil {
		r.checks = map[string]*tally{}
	}
	if r.checks[client] == nil {
		r.checks[client] = &tally{}
		r.clients = append(r.clients, client)
	}
	return r.checks[client]
}

// finish prints the table. It returns an error if a check failed.
func (r *report) finish() error {
	fmt.Println()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "checked with\tpassed\tfailed\tknown")
	failed := 0
	for _, client := range r.clients {
		t := r.checks[client]
		failed += t.failed
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", client, t.passed, t.failed, t.expected)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return errors.New("some checks failed: see the lines with FAIL above")
	}
	return nil
}
