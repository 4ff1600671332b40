package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/shared/e2e/harness"
)

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
	drives := newDisks(s.dir, s.out)
	defer func() { err = errors.Join(err, drives.close(err != nil || s.keep)) }()
	if s.world, err = newWorld(ctx, s.options, s.dir, drives); err != nil {
		return errors.Join(err, s.world.closeRelays(), s.world.close())
	}
	end := time.Now().Add(s.time)
	for n := 1; err == nil && ctx.Err() == nil && time.Now().Before(end) && (s.steps == 0 || n <= s.steps); n++ {
		err = s.step(ctx, plan(s.seed, n, s.laptops))
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
			if err := o.do(workCtx, &scene{s, s.world.laptops[o.laptop], p.excusesOn(o.laptop)}); err != nil {
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
	s.tally.add("steps", 1)
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
		s.tally.struck(f.fault)
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
