package remoterun

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// ErrPrinted: the code raised an exception, and its traceback has been printed.
var ErrPrinted = errors.New("the code raised an exception")

// ExitCode is the outcome of code that called sys.exit with a number from 1 to 255.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// outcome returns the error of a run that did not succeed.
func outcome(e contract.Execution) error {
	switch {
	case e.Status == contract.StatusSucceeded:
		return nil
	case e.Status == contract.StatusFailed:
		return exception(e.Error)
	}
	return &endedError{e.Status, plain.Line(e.Reason)}
}

// endedError is the outcome of a run that ended badly, except for exceptions.
type endedError struct {
	status contract.Status
	reason string
}

func (e *endedError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("the run ended as %s: %s", e.status, e.reason), ": ")
}

// Outcome returns the status, from which package hint derives the next step.
func (e *endedError) Outcome() contract.Status { return e.status }

// exception returns the outcome of code that raised an exception. sys.exit gives the same
// exit code as if the code had run on this computer.
func exception(e *contract.ExecutionError) error {
	if e == nil || e.EName != "SystemExit" {
		return ErrPrinted
	}
	if e.EValue == "" || e.EValue == "None" {
		return nil
	}
	switch code, err := strconv.ParseUint(e.EValue, 10, 8); {
	case err != nil:
		return ErrPrinted
	case code == 0:
		return nil
	default:
		return ExitCode(code)
	}
}
