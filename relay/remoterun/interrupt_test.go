package remoterun

import (
	"context"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

// The run may end just before the person presses Ctrl-C.
func TestAnInterruptAfterTheEndChangesNoOutcome(t *testing.T) {
	vm := startVM(t)
	toVM := newClient(t, vm)
	done, err := toVM.Submit(t.Context(), contract.Submit{Code: "print('done')", TimeoutSeconds: 3600, WaitSeconds: 30})
	within.Until(t, "the run has ended", func() bool {
		if err == nil && !done.End {
			done, err = toVM.Execution(t.Context(), done.ExecutionID, 0, 0, 0)
		}
		return err != nil || done.End
	})
	if err != nil {
		t.Fatal(err)
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
			r := &run{VM: VM{Runtime: "vm", Client: toVM}, answer: answer, endWait: within.Limit, out: newPrinter(toVM.Blobs, c.console(t))}
			if err := r.follow(interrupted); err != nil || c.out.String() != "done\n" || r.exec.Status != contract.StatusSucceeded {
				t.Errorf("%v, printed %q, status %s", err, c.out.String(), r.exec.Status)
			}
		})
	}
}
