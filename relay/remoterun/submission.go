package remoterun

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// errUnanswered: the person did not wait for the answer to the submit.
var errUnanswered = errors.New("the VM did not answer before the interrupt, so the run may have started: `colab-relay ps` lists the runs")

// submit submits the code. If ctx ends, it still waits for the answer, because only a run
// whose id is known can be interrupted, for at most submitGrace or until another signal.
func (r *run) submit(ctx context.Context, withPackage bool) error {
	submitting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		waiting, done := signal.NotifyContext(submitting, os.Interrupt, syscall.SIGTERM)
		defer done()
		select {
		case <-waiting.Done():
		case <-time.After(submitGrace):
		}
		cancel()
	})
	defer stop()
	s := r.submission(withPackage)
	s.WaitSeconds, s.BehindInput = firstWait.Seconds(), true
	e, err := r.Client.Submit(submitting, s)
	if err != nil && submitting.Err() != nil {
		return errUnanswered
	}
	if err != nil {
		return unsubmitted(r.explain(err), s.RequestID)
	}
	r.instance = r.Client.InstanceID()
	r.answer = e
	if e.Status == contract.StatusQueued && e.QueuePosition > 0 {
		r.out.note("waiting for %s before this one", plain.Count(e.QueuePosition, "run"))
	}
	return nil
}

// ImportAnew has the code that is submitted next import those modules anew whose files changed,
// as each program does by itself. The kernel may be busy: a caller that does not wait knows that
// code runs in the order in which it was submitted.
func ImportAnew(ctx context.Context, vm VM, wait time.Duration) error {
	call := kernelpy.Call{Function: "script.import_anew", Arguments: []any{}, Delivery: kernelpy.Display}
	s := contract.Submit{Code: "# colab-relay: " + call.Function + "\n" + call.Code(true), Unstored: true, BehindInput: true, WaitSeconds: wait.Seconds(), TimeoutSeconds: anewTimeout.Seconds()}
	e, err := vm.Client.Submit(ctx, s)
	if err == nil && e.Status.Finished() && e.Status != contract.StatusSucceeded {
		err = fmt.Errorf("the search for changed modules ended as %s", plain.Line(string(e.Status)))
	}
	if err != nil {
		return NotRun(err)
	}
	return nil
}

// NotRun returns err with the words that the code was not run.
func NotRun(err error) error { return fmt.Errorf("the code was not run: %w", err) }

// unsubmitted adds to the error of a submit whether the code was run.
func unsubmitted(err error, requestID string) error {
	if client.MayRun(err) {
		return fmt.Errorf("the code may have been submitted, and it is unknown whether it ran (%w); check `colab-relay ps --json` for request_id %s before you run it again", err, requestID)
	}
	if _, unanswered := errors.AsType[*client.Error](err); unanswered {
		return NotRun(err)
	}
	return err
}

// submission is the submit of the code. A program is an argument of our function in the
// kernel, which knows the file's name and arguments.
func (r *run) submission(withPackage bool) contract.Submit {
	s := contract.Submit{RequestID: rand.Text(), Code: r.Text, TimeoutSeconds: r.Timeout.Seconds()}
	if r.Program == "" {
		return s
	}
	call := kernelpy.Call{Function: "script.run", Arguments: []any{r.Program, kernelpy.Packed(r.Text), append([]string{}, r.Arguments...)}, Delivery: kernelpy.Display}
	s.Code = "# " + r.preview() + "\n" + call.Code(withPackage)
	s.Source, s.SourceName, s.Unstored = r.Text, r.commandLine(), true
	return s
}

// commandLine is the program's name and its arguments.
func (r *run) commandLine() string {
	return strings.Join(append([]string{r.Program}, r.Arguments...), " ")
}

// preview is what lists of runs show of a program: how it was called, and its first line.
func (r *run) preview() string {
	for line := range strings.Lines(r.Text) {
		if line = strings.TrimSpace(line); line != "" {
			return plain.Line(r.commandLine() + ": " + line)
		}
	}
	return plain.Line(r.commandLine())
}
