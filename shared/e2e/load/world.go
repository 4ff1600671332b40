package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

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
