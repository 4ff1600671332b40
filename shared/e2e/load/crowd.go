package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"colabrelay/shared/e2e/harness"
)

const (
	// One relay of ten makes several calls at a time.
	greedyEvery = 10
	greedyCalls = 4
	// leastShare is the smallest part of another relay's operations that a relay may get.
	leastShare = 0.1
	// mostExecutor and mostRelay are the most resident memory of one program, in MiB.
	mostExecutor = 160
	mostRelay    = 80
)

func workersOf(number int) int {
	if number%greedyEvery == 0 {
		return greedyCalls
	}
	return 1
}

// crowd lets all relays make calls as fast as they get answers, and then checks that nothing is
// left of it.
func crowd(ctx context.Context, o options, out io.Writer) error {
	usual, err := afterOneRound(ctx, o.seed)
	if err != nil {
		return fmt.Errorf("one relay, one round: %w", err)
	}
	w, err := newWorld(ctx, o.seed)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.oneRound(ctx); err != nil {
		return err
	}
	before, err := w.holdings()
	if err != nil {
		return err
	}
	w.tally = newTally()
	if err := w.startAll(ctx, o.relays, workersOf); err != nil {
		return err
	}
	began := time.Now()
	if err := w.workHard(ctx, o); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d relays, one of %d with %d calls at a time, for %.0f s; seed %d\n", o.relays, greedyEvery, greedyCalls, time.Since(began).Seconds(), o.seed)
	w.tally.print(out)
	ran, err := w.runs.check()
	fmt.Fprintf(out, "%d runs took place; each run that was accepted took place once: %t\n", ran, err == nil)
	return errors.Join(err, w.honest(), w.fair(out), w.small(out), w.leftNothing(ctx, before, usual, out))
}

// workHard lets all workers work until the time is over and each has done its rounds.
func (w *world) workHard(ctx context.Context, o options) error {
	over := time.Now().Add(o.time)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failed := w.eachWorker(ctx, func(ctx context.Context, worker *worker) error {
		least := worker.done + o.rounds*len(deck())
		err := worker.work(ctx, func() bool { return ctx.Err() != nil || worker.done >= least && time.Now().After(over) })
		if err != nil {
			cancel(err) // ends the others
		}
		return err
	})
	if failed != nil {
		return context.Cause(ctx)
	}
	return nil
}

// oneRound starts a relay that does each operation, and ends it.
func (w *world) oneRound(ctx context.Context) error {
	if err := w.startAll(ctx, 1, func(int) int { return 1 }); err != nil {
		return err
	}
	return errors.Join(w.workHard(ctx, options{rounds: 1}), w.dismiss())
}

// fair fails if one relay got much less than another.
func (w *world) fair(out io.Writer) error {
	fewest, most := w.relays[0].done(), 0
	for _, r := range w.relays {
		fewest, most = min(fewest, r.done()), max(most, r.done())
	}
	_, err := fmt.Fprintf(out, "operations of one relay: %d to %d\n", fewest, most)
	if float64(fewest) < leastShare*float64(most) {
		err = fmt.Errorf("one relay did %d operations, another %d", fewest, most)
	}
	return err
}

// small fails if a program needed too much memory.
func (w *world) small(out io.Writer) error {
	executor, err := harness.MemoryOf(w.executor.PID())
	if err != nil {
		return err
	}
	var largest, sum float64
	for _, r := range w.relays {
		m, err := harness.MemoryOf(r.PID())
		if err != nil {
			return fmt.Errorf("relay %s: %w", r.name, err)
		}
		largest, sum = max(largest, m.Peak), sum+m.Now
	}
	_, err = fmt.Fprintf(out, "memory: the executor %.1f MiB, at most %.1f; the largest relay at most %.1f, all relays now %.0f\n", executor.Now, executor.Peak, largest, sum)
	if executor.Peak > mostExecutor || largest > mostRelay {
		err = fmt.Errorf("the executor took %.1f MiB, of %d; a relay took %.1f, of %d", executor.Peak, mostExecutor, largest, mostRelay)
	}
	return err
}

// eachWorker calls f for all workers at the same time and returns the first error of each.
func (w *world) eachWorker(ctx context.Context, f func(context.Context, *worker) error) error {
	var working sync.WaitGroup
	var mu sync.Mutex
	var all error
	for _, r := range w.relays {
		for _, worker := range r.workers {
			working.Go(func() {
				err := f(ctx, worker)
				mu.Lock()
				defer mu.Unlock()
				all = errors.Join(all, err)
			})
		}
	}
	working.Wait()
	return all
}

// expectation is how often a run must have taken place.
type expectation int

const (
	atMostOnce expectation = iota // its answer is unknown, or it was interrupted
	once                          // an answer says that it took place
	never                         // it was refused
)

// runs are all runs that relays asked for. Each run appends its id to a file on the VM before
// it does anything else. It is safe for concurrent use.
type runs struct {
	path string // of that file

	mu  sync.Mutex
	all map[string]expectation
}

// expect notes what an answer says about the run id.
func (r *runs) expect(id string, e expectation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]expectation{}
	}
	r.all[id] = e
}

// check compares the file with what the answers said. It returns how many runs took place.
func (r *runs) check() (int, error) {
	text, err := os.ReadFile(r.path)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ran := map[string]int{}
	for id := range strings.Lines(string(text)) {
		ran[strings.TrimSuffix(id, "\n")]++
	}
	var wrong []string
	for id, times := range ran {
		if _, known := r.all[id]; !known {
			wrong = append(wrong, fmt.Sprintf("%q ran, but no relay asked for it", id))
		} else if times > 1 {
			wrong = append(wrong, fmt.Sprintf("%q ran %d times", id, times))
		}
	}
	for id, e := range r.all {
		switch {
		case e == once && ran[id] == 0:
			wrong = append(wrong, fmt.Sprintf("%q did not run although its answer says so", id))
		case e == never && ran[id] > 0:
			wrong = append(wrong, fmt.Sprintf("%q ran although it was refused", id))
		}
	}
	if len(wrong) > 0 {
		return len(ran), fmt.Errorf("%d contradictions: %s", len(wrong), strings.Join(wrong[:min(len(wrong), 5)], "; "))
	}
	return len(ran), nil
}

// input answers a run that calls input().
func input(ctx context.Context, w *worker) {
	id, code := w.mark()
	a := harness.Must(w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + "print('hello', input('who? '))"}))
	wantField(a, "status", "waiting_for_input")
	execution, asked := a.String("execution_id"), a.String("stdout")
	harness.Must(w.succeed(ctx, "provide_input", map[string]any{"execution_id": execution, "text": id}))
	rest := harness.Must(w.ask(ctx, "get_execution", map[string]any{"execution_id": execution, "offset": a.Int("next_offset"), "wait_seconds": 40}))
	rest = harness.Must(w.finish(ctx, id, rest))
	stdout := asked + rest.String("stdout")
	harness.FailIf(!strings.HasSuffix(stdout, "hello "+id+"\n"), "stdout is %q", stdout)
	wantField(rest, "status", "succeeded")
}

// interrupt finds its own run in the list and interrupts it while it waits or runs. The run ends
// by itself after 3 s.
func interrupt(ctx context.Context, w *worker) {
	id, code := w.mark()
	var end harness.Answer
	ended := make(chan error, 1)
	go func() {
		var err error
		end, err = w.execute(ctx, id, "run_code_long", map[string]any{"code": "# " + id + "\n" + code + "import time\nfor _ in range(300): time.sleep(.01)"})
		ended <- err
	}()
	interrupted, err := w.interruptRun(ctx, id)
	harness.Check(errors.Join(err, <-ended))
	status := end.String("status")
	harness.FailIf(status != "interrupted" && status != "cancelled" && (status != "succeeded" || interrupted), "a run that was interrupted (%t): %s", interrupted, end.Text)
}

// interruptRun reports whether it found the run before it had ended, and interrupted it.
func (w *worker) interruptRun(ctx context.Context, id string) (bool, error) {
	for range 20 {
		a, err := w.succeed(ctx, "list_executions", map[string]any{"limit": 200})
		if err != nil {
			return false, err
		}
		list, _ := a.Fields["executions"].([]any)
		for _, entry := range list {
			e, _ := entry.(map[string]any)
			if preview, _ := e["code_preview"].(string); preview != "# "+id {
				continue
			}
			a, err := w.ask(ctx, "interrupt_execution", map[string]any{"execution_id": e["execution_id"]})
			status := a.String("status")
			return status == "interrupted" || status == "cancelled", err // it may end by itself meanwhile
		}
	}
	return false, nil
}
