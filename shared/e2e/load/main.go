// The load command runs many MCP hosts, each with a real relay, against one executor with a
// real kernel. All make calls of every kind, whose answers are checked. At the end, every
// accepted run must have taken place exactly once, every relay must have had its part, and
// neither program may have kept anything.
//
// It must not judge speeds. The exit code is 1 if a check failed. Start reading at crowd.go
// (the load) and worker.go (the calls).
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
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
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

// secret is a valid secret that protects nothing.
const secret = "the secret of make load: 32 bytes or more"

// world is one executor with its relays. All their files are in one folder.
type world struct {
	dir      string
	binaries harness.Binaries
	executor *harness.Executor
	wire     *harness.Wire // counts what passes between relays and executor
	relays   []*relay
	started  int // relays so far
	runs     runs
	tally    *tally
	seed     uint64
}

// relay is an MCP host with its relay, and the workers that make calls at the same time.
type relay struct {
	*harness.Host
	name    string // such as r007
	dir     string // its home
	workers []*worker
}

// done returns how many operations the relay has done.
func (r *relay) done() (n int) {
	for _, w := range r.workers {
		n += w.done
	}
	return n
}

// newWorld builds the programs and starts an executor in a new folder.
func newWorld(ctx context.Context, seed uint64) (w *world, err error) {
	w = &world{seed: seed, tally: newTally()}
	if w.dir, err = os.MkdirTemp("", "load-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.binaries, err = harness.Build(ctx, w.dir); err != nil {
		return nil, err
	}
	w.runs.path = filepath.Join(w.vm(), "ran.txt")
	if err = errors.Join(os.Mkdir(w.vm(), 0o700), os.Mkdir(w.temp(), 0o700)); err != nil {
		return nil, err
	}
	executor := filepath.Join(w.dir, "executor.sh")
	if err = os.WriteFile(executor, fmt.Appendf(nil, "#!/bin/sh\nexec /bin/sh -c '%s' '%s' \"$@\"\n", intoFile, w.binaries.Executor), 0o700); err != nil {
		return nil, err
	}
	w.executor, err = harness.StartExecutor(ctx, harness.ExecutorConfig{
		Binary: executor, Python: filepath.Join(stacks.Root(), ".python", "old", "bin", "python"), Dir: w.vm(), Secret: secret,
		Env: []string{"HOME=" + w.vm(), "TMPDIR=" + w.temp(), "LOG=" + w.vm() + ".log"},
	})
	if err != nil {
		return nil, err
	}
	w.wire, err = harness.NewWire(w.executor.Ready.LocalURL[len("http://"):])
	return w, err
}

// vm is the executor's working directory.
func (w *world) vm() string { return filepath.Join(w.dir, "vm") }

// temp is the folder for temporary files of all programs.
func (w *world) temp() string { return filepath.Join(w.dir, "temp") }

// intoFile starts a program with the file LOG as its standard error. A pipe would lose parts of a
// list of goroutines, because Go's runtime does not wait for its reader.
const intoFile = `exec "$0" "$@" 2>>"$LOG"`

// start starts the relay with this number. workers make its calls.
func (w *world) start(ctx context.Context, number, workers int) (*relay, error) {
	r := &relay{name: fmt.Sprintf("r%03d", number)}
	r.dir = filepath.Join(w.dir, r.name)
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	r.Host, err = harness.StartHost(ctx, harness.HostConfig{
		Binary: "/bin/sh", Dir: r.dir, Args: []string{"-c", intoFile, w.binaries.Relay, "serve", "--toolsets", "notebook"},
		Env: []string{
			"LOG=" + r.dir + ".log",
			"COLAB_URL=http://" + w.wire.Addr, "COLAB_SECRET=" + secret, "RELAY_HOLD=45s", "TMPDIR=" + w.temp(),
			"LOCAL_SAVE_DIR=" + filepath.Join(r.dir, "saved"), "CHECKPOINT_DIR=" + filepath.Join(r.dir, "checkpoints"),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the relay %s: %w", r.name, err)
	}
	for n := range workers {
		r.workers = append(r.workers, &worker{
			world: w, relay: r, name: fmt.Sprintf("%s_%d", r.name, n),
			random: rand.New(rand.NewPCG(w.seed, uint64(number)<<8|uint64(n))),
		})
	}
	return r, nil
}

// startAll starts n relays, several at a time. workers returns how many calls each makes at a time.
func (w *world) startAll(ctx context.Context, n int, workers func(number int) int) error {
	w.relays = make([]*relay, n)
	first := w.started
	w.started += n
	errs := make([]error, n)
	slots := make(chan struct{}, 4)
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w.relays[i], errs[i] = w.start(ctx, first+i, workers(i))
		})
	}
	starting.Wait()
	w.relays = slices.DeleteFunc(w.relays, func(r *relay) bool { return r == nil })
	return errors.Join(errs...)
}

// dismiss ends all relays as closing hosts do.
func (w *world) dismiss() error {
	var err error
	for _, r := range w.relays {
		if closing := r.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("relay %s: %w", r.name, closing))
		}
	}
	w.relays = nil
	return err
}

// close ends everything and deletes the folder.
func (w *world) close() {
	_ = w.dismiss()
	if w.wire != nil {
		w.wire.Close()
	}
	if w.executor != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		_ = w.executor.Stop(ctx)
	}
	os.RemoveAll(w.dir)
}

// tally counts what all workers do. It is safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	calls   int // of tools
	now     int // calls at this moment
	most    int // calls at the same time
	busy    int // answers with kernel_busy
	refused map[contract.Code]int
	took    map[string][]time.Duration // by operation, without those that were refused
}

func newTally() *tally {
	return &tally{refused: map[contract.Code]int{}, took: map[string][]time.Duration{}}
}

// begin counts a call until the returned function is called with the code of its answer.
func (t *tally) begin() (end func(contract.Code)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls, t.now = t.calls+1, t.now+1
	t.most = max(t.most, t.now)
	return func(code contract.Code) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.now--
		switch code {
		case contract.CodeKernelBusy:
			t.busy++
		case contract.CodeQueueFull, contract.CodeRateLimited:
			t.refused[code]++
		}
	}
}

// did counts an operation that was not refused.
func (t *tally) did(o operation, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took[o.name] = append(t.took[o.name], took)
}

func (t *tally) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "operation\ttimes\tmedian s\tlongest s\t")
	for _, name := range slices.Sorted(maps.Keys(t.took)) {
		took := slices.Sorted(slices.Values(t.took[name]))
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%.2f\t\n", name, len(took), took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
	}
	table.Flush()
	fmt.Fprintf(out, "%d calls, up to %d at a time; answers: %d queue_full, %d rate_limited, %d kernel_busy\n",
		t.calls, t.most, t.refused[contract.CodeQueueFull], t.refused[contract.CodeRateLimited], t.busy)
}

// Limits of the executor, below which it must not refuse anything.
const (
	placesInQueue = 64   // executions that wait, and as many long polls
	burst         = 6000 // requests with one secret
)

// honest fails if calls were refused although they cannot have reached a limit.
func (w *world) honest() (err error) {
	requests := w.wire.Traffic().Requests
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	if n := w.tally.refused[contract.CodeQueueFull]; n > 0 && w.tally.most < placesInQueue {
		err = fmt.Errorf("%d answers were queue_full, but at most %d calls were made at the same time", n, w.tally.most)
	}
	if n := w.tally.refused[contract.CodeRateLimited]; n > 0 && w.tally.most < placesInQueue && requests < burst {
		err = errors.Join(err, fmt.Errorf("%d answers were rate_limited, but only %d requests were sent, and at most %d calls were made at the same time", n, requests, w.tally.most))
	}
	return err
}
