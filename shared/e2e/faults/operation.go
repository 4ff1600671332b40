package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// operation is something that an agent does. do returns when its end is known; an error is a
// contradiction to the model.
type operation interface {
	fmt.Stringer
	do(ctx context.Context, s *scene) error
}

// operations make one of each kind. name is unique in the run of the suite.
var operations = []func(r *rand.Rand, name string) operation{newQuick, newLong}

// scene is where an operation happens: a laptop, and the excuses of the step.
type scene struct {
	*suite
	laptop  *laptop
	excuses excuses
}

// errNoAnswer says that a call has no answer, because its relay ended.
var errNoAnswer = errors.New("the call has no answer")

// call calls a tool once. Its error is errNoAnswer if the step excuses that.
func (s *scene) call(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	a, err := s.laptop.current().Call(ctx, tool, args)
	if err != nil && ctx.Err() == nil && s.excuses.any(relayEnds) {
		return a, errNoAnswer
	}
	if err != nil {
		return a, err
	}
	return a, s.judge(tool, a)
}

// transient are the codes of answers after which an agent may call again, by what excuses
// them.
var transient = map[string]excuses{
	"unreachable":                          networkFails | executorEnds,
	"timeout":                              networkFails | executorEnds,
	string(contract.CodeKernelStarting):    kernelEnds | executorEnds,
	string(contract.CodeKernelDead):        kernelEnds | executorEnds,
	string(contract.CodeShuttingDown):      executorEnds,
	string(contract.StatusKernelDied):      kernelEnds,
	string(contract.StatusLost):            executorEnds,
	string(contract.StatusCancelled):       kernelEnds | executorEnds,
	string(contract.StatusInterrupted):     0,
	string(contract.StatusTimedOut):        0,
	string(contract.StatusFailed):          0,
	string(contract.CodeNotFound):          vmReplaced,
	string(contract.CodeNewInstance):       vmReplaced,
	string(contract.CodeInternal):          0,
	string(contract.CodeKernelBusy):        kernelEnds | executorEnds | networkFails | relayEnds,
	string(contract.CodeNewStart):          0,
	string(contract.CodeConflict):          0,
	string(contract.StatusWaitingForInput): 0,
}

// judge returns an error if the step does not excuse the answer's error.
func (s *scene) judge(tool string, a harness.Answer) error {
	code := a.Error()
	if code == "" {
		if a.IsError {
			return fmt.Errorf("%s: the answer is an error without a code: %s", tool, a.Text)
		}
		return nil
	}
	s.tally.refused(tool, code)
	if allowed, known := transient[code]; known && s.excuses.any(allowed) {
		return nil
	}
	return fmt.Errorf("%s: nothing in this step excuses %s: %s", tool, code, a.Text)
}

// ask repeats a call that may be repeated, until it has an answer without a transient error or
// with one of the codes.
func (s *scene) ask(ctx context.Context, tool string, args map[string]any, codes ...string) (harness.Answer, error) {
	for {
		a, err := s.call(ctx, tool, args)
		if err == nil && (a.Error() == "" || slices.Contains(codes, a.Error())) {
			return a, nil
		}
		if err != nil && !errors.Is(err, errNoAnswer) {
			return a, err
		}
		pause(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return a, fmt.Errorf("%s still has no answer: %w: %s", tool, ctx.Err(), a.Text)
		}
	}
}
