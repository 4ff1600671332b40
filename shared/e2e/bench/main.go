// The bench command measures the two programs on this machine and prints one table, which
// docs/BENCH.md keeps. Speeds are ratios to something that is measured in turn with them, so
// that the machine's noise affects both. Progress goes to standard error.
//
// It must not judge times as a test would: a missed target is a mark in the table. The exit
// code is 1 if something could not be measured. Start reading at topics.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"time"

	"colabrelay/shared/e2e/harness"
)

// topic is a part of the table. measure returns its rows, and ends with
// harness.Check where something fails.
type topic struct {
	name, title string
	measure     func(context.Context, *bench) []row
}

// topics are measured in this order. Those of one group run at the same time, because they
// sleep nearly always.
var topics = [][]topic{
	{{"quick", "`1+1` on loopback", quickRuns}},
	{{"notebook", "A notebook of 1,000 cells on loopback", notebook}},
	{{"bignotebook", "A notebook of 50 MB", bigNotebook}},
	{{"far", "`1+1` at a distance", farRuns}},
	{
		{"print", "From a print in a long run to its reader", printDelay},
		{"hour", "An hour through the tunnel", typicalHour},
	},
	{{"flood", "100 MB of prints", flood}},
	{{"transfer", "1 GiB on loopback", transfers}},
	{{"fartransfer", "256 MiB at 100 ms", farTransfers}},
	{{"start", "Start and size", startUp}},
}

// plainCommand makes this program the other end of a plain HTTP exchange.
const plainCommand = "serve-plain"

func main() {
	if len(os.Args) == 2 && os.Args[1] == plainCommand {
		_ = harness.Try(func() { servePlain(os.Stdin, os.Stdout) }) // the bench reports what it cannot reach
		return
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// options are the command's flags.
type options struct {
	only *regexp.Regexp // names of topics
	keep string
}

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "measure only the topics whose names match this `pattern`: quick, notebook, bignotebook, far, print, hour, flood, transfer, fartransfer, start")
	flags.StringVar(&o.keep, "keep", "", "write the table to this `file` too, if all of it was measured")
	if err := flags.Parse(args); err != nil {
		return o, err // package flag has printed it
	}
	if *only == "" {
		*only = ".*"
	} else if o.keep != "" {
		err = errors.New("-keep and -only exclude each other: a page has the whole table")
	}
	if err == nil {
		o.only, err = regexp.Compile("^(" + *only + ")$")
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
	}
	return o, err
}

// run is the whole program and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, o options, stdout, stderr io.Writer) error {
	b, err := newBench(ctx, stderr)
	if err != nil {
		return err
	}
	defer b.close()
	machine := describe(ctx, b)
	sections, err := measureAll(ctx, b, func(t topic) bool { return o.only.MatchString(t.name) })
	if ctx.Err() != nil {
		return errors.New("stopped")
	}
	machine.took = time.Since(machine.began)
	var report bytes.Buffer
	writeReport(&report, machine, sections)
	_, writeErr := stdout.Write(report.Bytes())
	err = errors.Join(err, writeErr)
	if o.keep != "" && err == nil {
		err = os.WriteFile(o.keep, report.Bytes(), 0o644)
	}
	return err
}

// measureAll returns the rows of the chosen topics, and the errors of those that failed.
func measureAll(ctx context.Context, b *bench, chosen func(topic) bool) (sections []section, failed error) {
	for _, group := range topics {
		results := make([]section, len(group))
		var running sync.WaitGroup
		for i, t := range group {
			if chosen(t) && ctx.Err() == nil {
				running.Go(func() { results[i] = measureOne(ctx, b, t) })
			}
		}
		running.Wait()
		for _, s := range results {
			if s.title != "" {
				sections = append(sections, s)
				failed = errors.Join(failed, s.err)
			}
		}
	}
	return sections, failed
}

func measureOne(ctx context.Context, parent *bench, t topic) section {
	b := parent.child(t.name)
	defer b.close()
	began := time.Now()
	b.progress("begins")
	var rows []row
	err := harness.Try(func() { rows = t.measure(ctx, b) })
	if err != nil {
		err = fmt.Errorf("%s: %w", t.name, err)
	}
	b.progress("took %.0f s", time.Since(began).Seconds())
	return section{title: t.title, rows: rows, err: err}
}
