// The load command runs many MCP hosts, each with a real relay, against one executor with a
// real kernel. All make calls of every kind, whose answers are checked. At the end, every
// accepted run must have taken place exactly once, every relay must have had its part, and
// neither program may have kept anything.
//
// With -steady, a few relays make a call now and then. Each minute, the command prints what
// both programs and the kernel hold, and at the end how fast that grew.
//
// It must not judge speeds. The exit code is 1 if a check failed. Start reading at crowd.go
// (the load), steady.go and operations.go (the calls).
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
	steady bool
	fill   int           // runs of each kind that the executor has before the samples of -steady
	rounds int           // that each relay completes at least, also after time
	sample time.Duration // from one line of -steady to the next
	pause  time.Duration // the longest pause of a relay between two calls of -steady
}

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.relays, "relays", 0, "`number` of relays, 1 to 1000 (default 100, with -steady 3)")
	minutes := flags.Float64("minutes", 2, "how many `minutes` calls are made")
	flags.Uint64Var(&o.seed, "seed", rand.Uint64(), "`number` that determines the order of calls (default: random)")
	flags.IntVar(&o.fill, "fill", 2000, "with -steady, `number` of runs by agents, and as many by relays, before the first sample; the executor keeps 2000 of each kind")
	flags.BoolVar(&o.steady, "steady", false, "few calls; print each minute what the programs hold")
	if err := flags.Parse(args); err != nil {
		return o, err // package flag has printed it
	}
	o.time, o.rounds, o.pause = time.Duration(*minutes*float64(time.Minute)), 1, 4*time.Second
	o.sample = min(time.Minute, o.time/20)
	if o.relays == 0 {
		o.relays = 100
		if o.steady {
			o.relays = 3
		}
	}
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("there are no arguments, only flags: %q", flags.Args())
	case o.relays < 1 || o.relays > 1000:
		err = fmt.Errorf("-relays must be 1 to 1000, not %d", o.relays)
	case o.fill < 0:
		err = fmt.Errorf("-fill must not be negative: %d", o.fill)
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
	what := crowd
	if o.steady {
		what = steady
	}
	if err := what(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "load: %v\nseed %d\n", err, o.seed)
		return 1
	}
	return 0
}
