// The load command runs many MCP hosts, each with a real relay, against one executor with a
// real kernel. All make calls of every kind, whose answers are checked. At the end, every
// accepted run must have taken place exactly once, every relay must have had its part, and
// neither program may have kept anything.
//
// It must not judge speeds. The exit code is 1 if a check failed. Start reading at crowd.go
// (the load) and operations.go (the calls).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// options are the command's flags.
type options struct {
	relays int
	time   time.Duration // how long calls are made
	seed   uint64        // of the order of calls
	rounds int           // that each relay completes at least, also after time
}

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.relays, "relays", 100, "`number` of relays, 1 to 1000")
	minutes := flags.Float64("minutes", 2, "how many `minutes` calls are made")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64(), "`number` that determines the order of calls (default: random)")
	if err := flags.Parse(args); err != nil {
		return o, err // package flag has printed it
	}
	o.time, o.rounds = time.Duration(*minutes*float64(time.Minute)), 1
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("there are no arguments, only flags: %q", flags.Args())
	case o.relays < 1 || o.relays > 1000:
		err = fmt.Errorf("-relays must be 1 to 1000, not %d", o.relays)
	case *minutes <= 0 || *minutes > 24*60:
		err = fmt.Errorf("-minutes must be above 0 and at most 1440, not %g", *minutes)
	}
	if err != nil {
		fmt.Fprintln(stderr, "load:", err)
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
	if err := crowd(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "load: %v\nseed %d\n", err, o.seed)
		return 1
	}
	return 0
}
