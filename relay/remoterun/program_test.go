package remoterun

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

func TestReadersOfLogsLeaveTheRunAlone(t *testing.T) {
	vm := VM{Runtime: "vm", Client: newClient(t, startVM(t))}
	e, err := Start(t.Context(), vm, Code{Text: "print('here', flush=True)\ninput()", Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var c console
	ended := make(chan error)
	go func() { ended <- Logs(ctx, vm, e, LogOptions{Follow: true}, c.console(t)) }()
	within.Until(t, "it is printed", func() bool { return strings.Contains(c.out.String(), "here") })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if e, err := vm.Client.Execution(t.Context(), e.ExecutionID, 0, 0, 0); err != nil || e.Status.Finished() {
		t.Errorf("the run is %s, %v", e.Status, err)
	}
	if _, err := vm.Client.Interrupt(t.Context(), e.ExecutionID); err != nil {
		t.Error(err)
	}
}

func TestRunsWhoseIDsBeginAlikeAreListed(t *testing.T) {
	runs := []contract.Execution{{ExecutionID: "abc1", CodePreview: "x\x1b[2J"}, {ExecutionID: "abd2"}}
	if _, err := Find(runs, "a"); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "\n  abd2  ") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
}
