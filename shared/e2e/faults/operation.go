package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
var operations = []func(r *rand.Rand, name string) operation{
	newQuick, newLong, newPaged, newInput, newInterrupted, newCancelled, newChunked, newUpload, newDownload, newFolder,
	newNotebook, newState, newVariable, newCommand,
}

// scene is where an operation happens: a laptop, and the excuses of the step.
type scene struct {
	*suite
	laptop  *laptop
	excuses excuses
}

// callCancelled is the code of an answer to a host that has closed its relay's stdin. A real host
// does not read it.
const callCancelled = "call_cancelled"

// errNoAnswer says that a call has no answer, because its relay ended.
var errNoAnswer = errors.New("the call has no answer")

func isNoAnswer(err error) bool { return errors.Is(err, errNoAnswer) }

// call calls a tool once. Its error is errNoAnswer if the step excuses that.
func (s *scene) call(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	a, err := s.answer(ctx, tool, args)
	if err == nil {
		_, err = s.judge(tool, a, nil)
	}
	return a, err
}

// answer is call for an answer that is not judged.
func (s *scene) answer(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if tool == "restore_kernel_state" {
		s.model.restoreBegins()
	}
	a, err := s.laptop.current().Call(ctx, tool, args)
	if (err != nil && ctx.Err() == nil || a.Error() == callCancelled) && s.excuses.any(relayEnds) {
		return a, errNoAnswer
	}
	return a, err
}

// ask repeats a call that may be repeated until it has an answer without an error, or with one
// that the operation takes.
func (s *scene) ask(ctx context.Context, tool string, args map[string]any, takes accepted) (harness.Answer, error) {
	for {
		a, err := s.answer(ctx, tool, args)
		if err == nil {
			var final bool
			if final, err = s.judge(tool, a, takes); final {
				return a, nil
			}
		}
		if err != nil && !isNoAnswer(err) {
			return a, err
		}
		if a.Error() == string(contract.CodeKernelDead) { // it died too often in a row: the agent is told to do this
			_, _ = s.answer(ctx, "restart_kernel", nil)
		}
		pause(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return a, fmt.Errorf("%s still has no answer: %w: %s", tool, ctx.Err(), a.Text)
		}
	}
}
