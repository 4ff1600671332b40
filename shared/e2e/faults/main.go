// The faults command is the fault suite: MCP hosts with real relays work on one real executor
// through a proxy, while a plan that follows from a seed kills and stops processes, fills disks and
// breaks the network. After each step a model of what must be true is checked. With -crowd, many
// relays work without faults, and neither they nor the executor may keep anything, or grow.
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
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

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
	crowd   bool // each laptop works in each step, and there are no faults
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(stderr)
	minutes := flags.Float64("minutes", 5, "begin no step after this `number` of minutes")
	flags.Uint64Var(&o.seed, "seed", 0, "`number` from which the plan follows (default: another one each time)")
	flags.IntVar(&o.steps, "steps", 0, "end after this `number` of steps (default: by time only)")
	flags.BoolVar(&o.keep, "keep", false, "keep the folders of both sides; those of a failed run are always kept")
	flags.IntVar(&o.laptops, "crowd", 3, "let this `number` of relays work, without faults (default: 3, with faults)")
	if err := flags.Parse(args); err != nil {
		return o, err // package flag has printed it
	}
	flags.Visit(func(f *flag.Flag) { o.crowd = o.crowd || f.Name == "crowd" })
	if *minutes <= 0 || o.steps < 0 || o.laptops < 1 || flags.NArg() > 0 {
		err = errors.New("-minutes and -crowd must be above 0, -steps must not be negative, and there are no other arguments")
		fmt.Fprintln(stderr, "faults:", err)
		return o, err
	}
	o.time = time.Duration(*minutes * float64(time.Minute))
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	o.python = filepath.Join(stacks.Root(), ".python", "old", "bin", "python")
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
	if os.Getenv(isolated) == "" && !o.crowd {
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

// step is what happens at the same time: operations on the laptops, and faults.
type step struct {
	number     int
	operations []placed
	faults     []planned
}

// placed is an operation with the number of its laptop.
type placed struct {
	operation
	laptop int
}

// plan returns a step, which follows from the seed and its number alone.
func plan(seed uint64, number, laptops int) step {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	s := step{number: number}
	for n := range 1 + r.IntN(3) {
		make := operations[r.IntN(len(operations))]
		s.operations = append(s.operations, placed{make(r, fmt.Sprintf("s%do%d", number, n)), r.IntN(laptops)})
	}
	for range [...]int{0, 1, 2, 3, 3, 4}[r.IntN(6)] {
		s.faults = append(s.faults, planFault(r, laptops))
	}
	return s
}

const (
	// One relay of ten makes several calls at a time.
	greedyEvery = 10
	greedyCalls = 4
	// placesInQueue is how many executions may wait. Below it the executor must refuse nothing.
	placesInQueue = 64
)

// crowdPlan returns a step in which each laptop works. The kinds of operations follow one another
// through the steps, so that none is left out.
func crowdPlan(seed uint64, number, laptops int) step {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	s := step{number: number}
	each := laptops + (laptops+greedyEvery-1)/greedyEvery*(greedyCalls-1)
	for laptop := range laptops {
		calls := 1
		if laptop%greedyEvery == 0 {
			calls = greedyCalls
		}
		for range calls {
			n := len(s.operations)
			make := operations[(number*each+n)%len(operations)]
			s.operations = append(s.operations, placed{make(r, fmt.Sprintf("s%do%03d", number, n)), laptop})
		}
	}
	return s
}

// excuses are those of all faults of the step.
func (s step) excuses() (e excuses) {
	if len(s.operations) >= placesInQueue {
		e = crowded
	}
	for _, f := range s.faults {
		e |= f.fault.excuses
	}
	return e
}

// excusesOn are those that concern a laptop: what ends, stops or fills another laptop is none.
func (s step) excusesOn(laptop int) (e excuses) {
	e = s.excuses() & crowded
	for _, f := range s.faults {
		if of := f.fault.excuses; of&^(relayEnds|relayStops|laptopDiskFull) != 0 || f.at == laptop {
			e |= of
		}
	}
	return e
}

// String is the step in one line.
func (s step) String() string {
	if len(s.operations) >= placesInQueue {
		return fmt.Sprintf("step %d: %d operations at once", s.number, len(s.operations))
	}
	var parts []string
	for _, o := range s.operations {
		parts = append(parts, fmt.Sprintf("%s on %d", o.operation, o.laptop))
	}
	line := fmt.Sprintf("step %d: %s", s.number, strings.Join(parts, ", "))
	for _, f := range s.faults {
		line += "; " + f.String()
	}
	return line
}

// tally counts what happened, by the line of the summary and by what it is.
type tally struct {
	began time.Time

	mu     sync.Mutex
	counts map[string]map[string]int
}

// The lines of the summary.
const (
	didLine     = "did"
	killsLine   = "kills"
	faultsLine  = "faults"
	refusedLine = "errors that a fault excuses"
)

func newTally() *tally {
	return &tally{began: time.Now(), counts: map[string]map[string]int{didLine: {}, killsLine: {}, faultsLine: {}, refusedLine: {}}}
}

func (t *tally) add(line, what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[line][what] += n
}

// killsOf returns how often a process was killed.
func (t *tally) killsOf(process string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[killsLine][process]
}

// print writes the summary.
func (t *tally) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(out, "%.0f s\n", time.Since(t.began).Seconds())
	for _, line := range []string{didLine, killsLine, faultsLine, refusedLine} {
		fmt.Fprintf(out, "%s: %s\n", line, listed(t.counts[line]))
	}
}

// listed is counts as text, in the order of their names.
func listed(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// suite is one run of the fault suite.
type suite struct {
	options
	out   io.Writer
	dir   string
	world *world
	model *model
	tally *tally

	statesLeft int // that faults excuse
}

func newSuite(o options, dir string, out io.Writer) *suite {
	return &suite{options: o, out: out, dir: dir, model: &model{}, tally: newTally()}
}

// run takes the steps, and prints a line for each and a summary.
func (s *suite) run(ctx context.Context) (err error) {
	fmt.Fprintf(s.out, "seed %d\n", s.seed)
	drives := &disks{}
	if !s.crowd {
		drives = newDisks(s.dir, s.out)
	}
	defer func() { err = errors.Join(err, drives.close(err != nil || s.keep)) }()
	if s.world, err = newWorld(ctx, s.options, s.dir, drives); err != nil {
		return errors.Join(err, s.world.closeRelays(), s.world.close())
	}
	end := time.Now().Add(s.time)
	for n := 1; err == nil && ctx.Err() == nil && time.Now().Before(end) && (s.steps == 0 || n <= s.steps); n++ {
		p := plan
		if s.crowd {
			p = crowdPlan
		}
		err = s.step(ctx, p(s.seed, n, s.laptops))
	}
	if err == nil && s.crowd {
		err = s.world.small(s.out)
	}
	if err == nil {
		err = s.endOldStates(ctx)
	}
	s.tally.print(s.out)
	s.world.network.close() // and with it all connections of the relays
	if err = errors.Join(err, ctx.Err()); err == nil {
		err = eventually(ctx, s.world.noRelayDescriptors)
	}
	if err = errors.Join(err, s.world.closeRelays()); err == nil {
		err = eventually(ctx, s.world.noDescriptors)
	}
	if err = errors.Join(err, s.world.close()); err != nil {
		return err
	}
	return eventually(ctx, func() error { return s.world.nothingLeft(s.tally.killsOf("relay")) })
}

// stepTime is the most that a step may take on a busy machine.
const stepTime = 8 * time.Minute

// step does all operations of a step and applies its faults meanwhile, and then checks the
// model.
func (s *suite) step(ctx context.Context, p step) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	fmt.Fprint(s.out, p)
	work, workCtx := errgroup.WithContext(ctx)
	ended := make(chan struct{})
	for _, o := range p.operations {
		work.Go(func() error {
			if err := harness.Try(func() { o.do(workCtx, &scene{s, s.world.laptops[o.laptop], p.excusesOn(o.laptop)}) }); err != nil {
				return fmt.Errorf("%s on %d: %w", o.operation, o.laptop, err)
			}
			return nil
		})
	}
	var strikes errgroup.Group
	for _, f := range p.faults {
		strikes.Go(func() error { return s.strike(ctx, f, ended) })
	}
	err := work.Wait()
	close(ended)
	if err = errors.Join(err, strikes.Wait()); err == nil {
		err = s.world.settle(ctx)
	}
	if err == nil && p.excuses().any(vmReplaced) {
		err = s.world.meet(ctx)
	}
	if err == nil {
		err = s.model.check(ctx, s, p.excuses())
	}
	s.tally.add(didLine, "steps", 1)
	s.statesLeft += p.mayLeaveStates()
	fmt.Fprintf(s.out, "; %.1f s\n", time.Since(began).Seconds())
	if err != nil {
		return fmt.Errorf("seed %d, step %d: %w", s.seed, p.number, err)
	}
	return nil
}

// strike applies a fault at its moment, or when all operations have ended.
func (s *suite) strike(ctx context.Context, f planned, ended <-chan struct{}) error {
	began := ledgerSize(s.world.ledgerPath())
	_ = harness.Poll(ctx, func() (bool, error) {
		select {
		case <-ended:
			return true, nil
		default:
			return ledgerSize(s.world.ledgerPath())-began >= int64(f.marks)*markBytes, nil
		}
	})
	pause(ctx, f.after)
	struck, err := f.fault.strike(ctx, s.world, f)
	if err != nil {
		return fmt.Errorf("%s: %w", f, err)
	}
	if struck {
		s.tally.add(faultsLine, f.fault.name, 1)
		if f.fault.kills != "" {
			s.tally.add(killsLine, f.fault.kills, 1)
		}
	}
	return nil
}

// markBytes is about the length of a line in the ledger.
const markBytes = 12

func ledgerSize(path string) int64 {
	if info, err := os.Stat(path); err == nil {
		return info.Size()
	}
	return 0
}
