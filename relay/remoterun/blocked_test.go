package remoterun

import (
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestARunBehindAPromptSaysSoOnceAndWaits(t *testing.T) {
	tier.Long(t)
	vm := newClient(t, startVM(t), nil)
	holder, err := vm.Submit(t.Context(), contract.Submit{Code: "print('held by', input('name? '))\nimport getpass; getpass.getpass('key: ')", WaitSeconds: 50})
	if err != nil || holder.Status != contract.StatusWaitingForInput {
		t.Fatalf("%s %v", holder.Status, err)
	}
	var c console
	ended := make(chan error)
	go func() {
		ended <- Run(t.Context(), VM{Runtime: "vm", Client: vm}, Code{Text: "print(1)", Timeout: time.Minute}, c.console(t))
	}()
	note := "which waits for input (\"name? \"). Answer it with `colab-relay input " + holder.ExecutionID + "`"
	within.Until(t, "it is printed", func() bool { return strings.Contains(c.err.String(), note) })
	if _, err := vm.Input(t.Context(), holder.ExecutionID, contract.Input{Text: "Ada"}); err != nil {
		t.Fatal(err)
	}
	within.Until(t, "it is printed", func() bool {
		x, err := vm.Execution(t.Context(), holder.ExecutionID, 0, 0, 0)
		return err == nil && x.Status == contract.StatusWaitingForInput
	})
	if _, err := vm.Input(t.Context(), holder.ExecutionID, contract.Input{Text: "secret", Password: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || c.out.String() != "1\n" || strings.Count(c.err.String(), "waiting for run") != 1 {
		t.Errorf("%v %q %q", err, c.out.String(), c.err.String())
	}
}
