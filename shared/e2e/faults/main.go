// The faults command is the fault suite: MCP hosts with real relays work on one real executor
// through a proxy, while a plan that follows from a seed kills and stops processes, fills disks and
// breaks the network. After each step a model of what must be true is checked.
//
// It must not excuse what the programs promise: a step's faults allow only the outcomes that
// excuses lists. Start reading at suite.step, then at plan, operation and fault.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options say how long the suite runs and what it does.
type options struct {
	seed    uint64
	steps   int           // 0: until the time is over
	time    time.Duration // no step begins later
	keep    bool          // keep the folders of a run without failure too
	python  string
	binary  harness.Binaries
	laptops int
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(stderr)
	minutes := flags.Float64("minutes", 5, "begin no step after this `number` of minutes")
	flags.Uint64Var(&o.seed, "seed", 0, "`number` from which the plan follows (default: another one each time)")
	flags.IntVar(&o.steps, "steps", 0, "end after this `number` of steps (default: by time only)")
	flags.BoolVar(&o.keep, "keep", false, "keep the folders of both sides; those of a failed run are always kept")
	if err := flags.Parse(args); err != nil {
		return o, err // package flag has printed it
	}
	if *minutes <= 0 || o.steps < 0 || flags.NArg() > 0 {
		err = errors.New("-minutes must be above 0, -steps must not be negative, and there are no other arguments")
		fmt.Fprintln(stderr, "faults:", err)
		return o, err
	}
	o.time = time.Duration(*minutes * float64(time.Minute))
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	o.python = filepath.Join(stacks.Root(), ".python", "old", "bin", "python")
	o.laptops = 3
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	if os.Getenv(isolated) == "" {
		if code, ok := again(ctx, args, stdout, stderr); ok {
			return code
		}
	}
	if err := soak(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "faults:", err)
		return 1
	}
	return 0
}

// soak builds the programs, runs the suite in a new folder, and keeps the folder if a check
// failed.
func soak(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && !o.keep {
			os.RemoveAll(dir)
			return
		}
		fmt.Fprintf(out, "The folders of both sides are in %s\n", dir)
	}()
	if o.binary, err = harness.Build(ctx, dir); err != nil {
		return err
	}
	return newSuite(o, dir, out).run(ctx)
}
