package remoterun

import (
	"testing"

	"colabrelay/shared/contract"
)

// A program may catch Ctrl-C, save, and choose its exit code.
func TestCodeThatWasInterruptedKeepsItsExitCode(t *testing.T) {
	e := contract.Execution{Status: contract.StatusInterrupted, Error: &contract.ExecutionError{EName: "SystemExit", EValue: "3"}}
	if err := outcome(e); err != ExitCode(3) {
		t.Errorf("after sys.exit(3): %v", err)
	}
	if e.Error.EName = "KeyboardInterrupt"; outcome(e) == nil {
		t.Error("an interrupt is a success")
	}
}
