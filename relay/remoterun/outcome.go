package remoterun

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// ErrPrinted: the code raised an exception, and its traceback has been printed.
var ErrPrinted = errors.New("the code raised an exception")

// NoModuleError is an ErrPrinted of code that imported a module which the VM does not have.
type NoModuleError struct {
	Module string // with dots; outside text
}

func (e *NoModuleError) Error() string { return fmt.Sprintf("the VM has no module %q", e.Module) }

// Unwrap returns ErrPrinted.
func (e *NoModuleError) Unwrap() error { return ErrPrinted }

// noModule is what Python says of a module that it did not find.
var noModule = regexp.MustCompile(`^No module named '([^']{1,200})'`)

// ExitCode is the outcome of code that called sys.exit with a number from 1 to 255.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// ended returns the outcome of the run, and prints what its output does not show.
func (r *run) ended() error {
	r.out.noteReason(r.exec)
	return outcome(r.exec)
}

// noteReason says what the executor added to the status of a run that ended by itself, such as
// that a full disk cost output. The error of any other run has it.
func (p *printer) noteReason(e contract.Execution) {
	if (e.Status == contract.StatusSucceeded || e.Status == contract.StatusFailed) && e.Reason != "" {
		p.note("%s", plain.Line(e.Reason))
	}
}

// outcome returns the error of a run that did not succeed.
func outcome(e contract.Execution) error {
	switch {
	case e.Status == contract.StatusSucceeded:
		return nil
	case e.Status == contract.StatusFailed, e.Status == contract.StatusInterrupted && e.Error != nil && e.Error.EName == "SystemExit":
		return exception(e.Error) // also of code that was interrupted and then chose its exit code
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
// exit code as if the code had run on this computer: a number counts modulo 256, and a text,
// which is the traceback, means 1.
func exception(e *contract.ExecutionError) error {
	if e != nil && e.EName == "ModuleNotFoundError" {
		if found := noModule.FindStringSubmatch(e.EValue); found != nil {
			return &NoModuleError{found[1]}
		}
	}
	if e == nil || e.EName != "SystemExit" || len(e.Traceback) > 0 {
		return ErrPrinted
	}
	switch e.EValue {
	case "", "None", "False":
		return nil
	case "True":
		return ExitCode(1)
	}
	code, ok := new(big.Int), len(e.EValue) <= maxDigits
	if ok {
		code, ok = code.SetString(e.EValue, 10)
	}
	if !ok {
		return ErrPrinted
	}
	// Python cannot pass on a number of over 64 bits, and exits with 255.
	if !code.IsInt64() {
		return ExitCode(255)
	}
	if code := ExitCode(code.Int64() & 0xff); code != 0 {
		return code
	}
	return nil
}

// maxDigits bounds the exit codes that are parsed. Python makes no text of a longer number.
const maxDigits = 4300
