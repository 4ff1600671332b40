package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// input is a run that asks for a line.
type input struct{ name string }

func newInput(_ *rand.Rand, name string) operation { return &input{name} }

func (i *input) String() string { return "a run with input()" }

func (i *input) do(ctx context.Context, s *scene) error {
	line := "the line of " + i.name
	x := s.submission(i.name, "print('got', input('? '))", "got "+line+"\n")
	a, begun, err := s.begin(ctx, x)
	for err == nil && begun && !x.over() {
		if x.reported == contract.StatusWaitingForInput {
			_, err = s.ask(ctx, "provide_input", map[string]any{"execution_id": x.executionID, "text": line}, inputErrors)
			if err != nil {
				return err
			}
		}
		_, begun, err = s.get(ctx, x, 0, 1)
	}
	if err != nil || !begun {
		return err
	}
	return s.follow(ctx, x, harness.Answer{Fields: a.Fields})
}

// inputErrors say that an earlier answer was taken, or that the run has ended.
var inputErrors = accepted{string(contract.CodeConflict): always, string(contract.CodeNotFound): vmReplaced}

// interruptErrors say that the run has ended.
var interruptErrors = accepted{
	string(contract.CodeConflict): always, string(contract.CodeNotFound): vmReplaced,
	string(contract.StatusKernelDied): kernelEnds, string(contract.StatusLost): executorEnds,
	string(contract.StatusCancelled): always, string(contract.StatusInterrupted): always,
}

// interrupted is an endless run that the agent interrupts.
type interrupted struct {
	name  string
	after time.Duration
}

func newInterrupted(r *rand.Rand, name string) operation {
	return &interrupted{name, time.Duration(r.IntN(400)) * time.Millisecond}
}

func (i *interrupted) String() string { return "an endless run that is interrupted" }

func (i *interrupted) do(ctx context.Context, s *scene) error {
	x := s.submission(i.name, "import time\nwhile True: time.sleep(0.01)", "")
	x.expected = accepted{string(contract.StatusInterrupted): always, string(contract.StatusCancelled): always}
	a, begun, err := s.begin(ctx, x)
	for err == nil && begun && !x.over() {
		pause(ctx, i.after)
		_, err = s.ask(ctx, "interrupt_execution", map[string]any{"execution_id": x.executionID}, interruptErrors)
		if err == nil {
			a, begun, err = s.get(ctx, x, 0, 1)
		}
	}
	if err == nil && begun && x.reported == contract.StatusSucceeded {
		return fmt.Errorf("run %s never ends, and is said to have succeeded: %s", x.id, a.Text)
	}
	return err
}

// cancelled is a run whose call the host cancels.
type cancelled struct {
	long
	after time.Duration
}

func newCancelled(r *rand.Rand, name string) operation {
	return &cancelled{long{name, 10 + r.IntN(40), 5 + r.IntN(40)}, time.Duration(r.IntN(600)) * time.Millisecond}
}

func (c *cancelled) String() string { return c.long.String() + " whose call is cancelled" }

func (c *cancelled) do(ctx context.Context, s *scene) error {
	x := c.submission(s)
	call, cancel := context.WithTimeout(ctx, c.after)
	defer cancel()
	a, err := s.laptop.current().Call(call, "run_code_long", map[string]any{"code": x.code})
	if err == nil && !(a.Error() == callCancelled && s.excuses.any(relayEnds)) {
		x.take(a)
		if _, err := s.judge("run_code_long", a, nil); err != nil {
			return err
		}
	} else {
		a = harness.Answer{}
		s.tally.add("cancelled calls", 1)
	}
	if x.executionID == "" {
		if x.executionID, err = s.find(ctx, x.id); err != nil || x.executionID == "" {
			return err
		}
	}
	return s.follow(ctx, x, a)
}
