package remoterun

import (
	"testing"

	"colabrelay/shared/contract"
)

func TestAKeptRunWhoseEndIsUnknownSaysWhatWasSeenLast(t *testing.T) {
	for status, want := range map[contract.Status]string{
		contract.StatusRunning:   "colab-relay: the run was running when the VM last answered\n",
		contract.StatusSucceeded: "",
	} {
		var c console
		kept := Kept{Execution: contract.Execution{ExecutionID: "e", Status: status, Events: []contract.Event{{Type: contract.EventStream, Text: "here\n"}}}}
		if err := PrintKept(t.Context(), kept, LogOptions{}, c.console(t)); err != nil || c.out.String() != "here\n" || c.err.String() != want {
			t.Errorf("%s: %v %q %q", status, err, c.out.String(), c.err.String())
		}
	}
}

// A full disk may cost output of a run that succeeded.
func TestTheReasonOfARunThatEndedByItselfIsPrinted(t *testing.T) {
	for _, status := range []contract.Status{contract.StatusSucceeded, contract.StatusFailed} {
		e := contract.Execution{ExecutionID: "e", Status: status, Reason: "9 bytes of its output \x1b[31mcould not be written"}
		const want = "colab-relay: 9 bytes of its output could not be written\n"
		var logs, json, attached console
		if err := PrintKept(t.Context(), Kept{Execution: e}, LogOptions{}, logs.console(t)); err != nil || logs.err.String() != want {
			t.Errorf("logs: %v, %q", err, logs.err.String())
		}
		if err := PrintKept(t.Context(), Kept{Execution: e}, LogOptions{JSON: true}, json.console(t)); err != nil || json.err.String() != "" {
			t.Errorf("logs --json: %v, %q", err, json.err.String())
		}
		r := run{exec: e, out: newPrinter(nil, attached.console(t))}
		if err := r.ended(); (err == nil) != (status == contract.StatusSucceeded) || attached.err.String() != want {
			t.Errorf("run and attach: %v, %q", err, attached.err.String())
		}
	}
}
