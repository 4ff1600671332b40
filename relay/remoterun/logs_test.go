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
