package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// steady lets a few relays make calls with pauses between them. It prints a line for each
// sample and, at the end, how fast the programs grew. It fails if one grew too much. Before, the
// executor gets as many runs as it keeps, because its memory grows with them up to that number.
func steady(ctx context.Context, o options, out io.Writer) error {
	w, err := newWorld(ctx, o.seed)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.startAll(ctx, o.relays, func(int) int { return 1 }); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d relays for %s; seed %d\n", o.relays, o.time, o.seed)
	if err := w.fill(ctx, o.fill); err != nil {
		return err
	}
	h, err := newHistory(w, out)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.workCalmly(ctx, o, out) }()
	every := time.NewTicker(o.sample)
	defer every.Stop()
	for {
		select {
		case err := <-ended:
			ran, wrong := w.runs.check()
			w.tally.print(out)
			fmt.Fprintf(out, "%d runs took place; each run that was accepted took place once: %t\n", ran, wrong == nil)
			return errors.Join(err, wrong, h.report())
		case <-every.C:
			if err := h.sample(); err != nil {
				cancel()
				return errors.Join(err, <-ended)
			}
		}
	}
}

// fill submits so many runs as agents do, and as many as relays do for themselves.
func (w *world) fill(ctx context.Context, runs int) error {
	key, err := auth.NewSecret(secret)
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{BaseURL: w.executor.Ready.LocalURL, Secret: key})
	if err != nil {
		return err
	}
	defer c.Close()
	for n := range 2 * runs {
		x, err := c.Submit(ctx, contract.Submit{Code: "None", Unstored: n%2 == 0, WaitSeconds: 40})
		if err != nil {
			return fmt.Errorf("filling the executor: run %d: %w", n, err)
		}
		if x.Status != contract.StatusSucceeded {
			return fmt.Errorf("filling the executor: run %d is %s: %s", n, x.Status, x.Reason)
		}
	}
	return nil
}

// workCalmly lets every relay make calls, with pauses, until the time is over. A relay whose
// operation failed goes on, so that the figures do not end with it.
func (w *world) workCalmly(ctx context.Context, o options, out io.Writer) error {
	over := time.Now().Add(o.time)
	return w.eachWorker(ctx, func(ctx context.Context, worker *worker) (failed error) {
		for ctx.Err() == nil && time.Now().Before(over) {
			err := worker.work(ctx, func() bool {
				pause(ctx, time.Duration(worker.random.Int64N(int64(o.pause))))
				return ctx.Err() != nil || time.Now().After(over)
			})
			if err != nil {
				fmt.Fprintln(out, "an operation failed:", err)
			}
			failed = cmp.Or(failed, err)
		}
		return failed
	})
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
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
