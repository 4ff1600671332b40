package remoterun

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestAnInterruptAtAnInputPromptEndsTheRun(t *testing.T) {
	tier.Long(t)
	vm := startVM(t)
	stdin, typing := io.Pipe()
	defer typing.Close() // ends the read that is left running
	var out, errs harness.Output
	toVM := newClient(t, vm, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() {
		ended <- Run(ctx, VM{Runtime: "vm", Client: toVM}, Code{Text: "input('name? ')", Timeout: time.Minute},
			Console{Streams: terminal.Streams{In: stdin, Out: &out, Err: &errs}, PictureDir: t.TempDir()})
	}()
	within.Until(t, "it is printed", func() bool { return strings.Contains(out.String()+errs.String(), "name? ") })
	cancel()
	err := <-ended
	if err == nil || strings.Contains(err.Error(), "may still be running") || !strings.Contains(errs.String(), "KeyboardInterrupt") {
		t.Errorf("it ended with %v and printed %q", err, errs.String())
	}
}

// The run may end just before the person presses Ctrl-C.
func TestAnInterruptAfterTheEndChangesNoOutcome(t *testing.T) {
	vm := startVM(t)
	toVM := newClient(t, vm, nil)
	done, err := toVM.Submit(t.Context(), contract.Submit{Code: "print('done')", TimeoutSeconds: 60, WaitSeconds: 30})
	if err != nil || !done.End {
		t.Fatalf("%+v, %v", done, err)
	}
	now, ended, err := Interrupt(t.Context(), VM{Client: toVM}, contract.Execution{ExecutionID: done.ExecutionID, Status: contract.StatusRunning})
	if err != nil || !ended || now.Status != contract.StatusSucceeded {
		t.Errorf("%s, ended %t, %v", now.Status, ended, err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for name, answer := range map[string]contract.Execution{"with the answer": done, "without the answer": {ExecutionID: done.ExecutionID}} {
		t.Run(name, func(t *testing.T) {
			var c console
			r := &run{VM: VM{Runtime: "vm", Client: toVM}, answer: answer, endWait: endWait, out: newPrinter(toVM.Blobs, c.console(t))}
			if err := r.follow(interrupted); err != nil || c.out.String() != "done\n" || r.exec.Status != contract.StatusSucceeded {
				t.Errorf("%v, printed %q, status %s", err, c.out.String(), r.exec.Status)
			}
		})
	}
}

func TestAnInterruptCancelsAQueuedRun(t *testing.T) {
	vm := startVM(t)
	toVM := newClient(t, vm, nil)
	first, err := toVM.Submit(t.Context(), contract.Submit{Code: "input()", TimeoutSeconds: 60, WaitSeconds: 0})
	if err != nil {
		t.Fatal(err)
	}
	queued, err := toVM.Submit(t.Context(), contract.Submit{Code: "1", TimeoutSeconds: 60, WaitSeconds: 0})
	if err != nil || queued.Status != contract.StatusQueued {
		t.Fatalf("%+v, %v", queued, err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	var c console
	r := &run{VM: VM{Runtime: "vm", Client: toVM}, answer: queued, endWait: endWait, out: newPrinter(toVM.Blobs, c.console(t))}
	if err := r.follow(interrupted); err != nil || r.exec.Status != contract.StatusCancelled || !strings.Contains(c.err.String(), "cancelling the run, which was queued") {
		t.Errorf("%v, status %s, printed %q", err, r.exec.Status, c.err.String())
	}
	if _, err := toVM.Interrupt(t.Context(), first.ExecutionID); err != nil {
		t.Error(err)
	}
}
