package remoterun

import (
	"bytes"
	"strings"
	"testing"

	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// A run that had not ended when its VM went away prints nothing more.
func TestAKeptRunSaysHowItWasLastSeen(t *testing.T) {
	var notes bytes.Buffer
	run := Kept{Execution: contract.Execution{ExecutionID: "x", Status: contract.StatusRunning}}
	if err := PrintKept(t.Context(), run, LogOptions{}, Console{Streams: terminal.Streams{Out: &bytes.Buffer{}, Err: &notes}}); err != nil {
		t.Fatal(err)
	}
	if got := notes.String(); !strings.Contains(got, "the run was running when the VM last answered") || strings.Contains(got, "logs -f") {
		t.Errorf("%q", got)
	}
}
