package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
)

// Exit codes. Those above 1 are the ones of BSD's sysexits.h. `run` also returns the code
// that the program on the VM gave to sys.exit.
const (
	exitFailure     = 1
	exitUsage       = 64 // EX_USAGE
	exitUnreachable = 69 // EX_UNAVAILABLE
	exitRunning     = 75 // EX_TEMPFAIL
)

// usageError is an error in the command line itself: nothing was tried.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// reportedError is an error whose next step was printed before.
type reportedError struct {
	error
	code int // the exit code
}

// unreachable are the kinds of errors after which the same command may work once the VM
// answers. The others need a person to correct something first.
var unreachable = map[client.Kind]bool{
	client.KindUnreachable:   true,
	client.KindNoSuchHost:    true,
	client.KindTunnelOffline: true,
	client.KindTunnelQuota:   true,
	client.KindTunnelError:   true,
	client.KindNotExecutor:   true, // such as the login page of a hotel's network
	client.KindBadAnswer:     true,
	client.KindTimeout:       true,
	client.KindRateLimited:   true,
	client.KindWrongSecret:   false,
	client.KindWrongProtocol: false,
}

// exitCode returns the exit code for the error of a command.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[remoterun.ExitCode](err); ok {
		return int(exit)
	}
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, pairing.ErrBadName) || errors.Is(err, auth.ErrPairing) || isWrongID(err) {
		return exitUsage
	}
	if reported, ok := errors.AsType[reportedError](err); ok {
		return reported.code
	}
	if errors.Is(err, remoterun.ErrStillRunning) { // before a lost connection: a script must not run the code again
		return exitRunning
	}
	if _, ok := errors.AsType[*page.NoTabError](err); ok {
		return exitUnreachable
	}
	if lost, ok := errors.AsType[*client.Error](err); ok && unreachable[lost.Kind] {
		return exitUnreachable
	}
	return exitFailure
}

// isWrongID reports whether err is about the id of a run or a cell that a person gave.
func isWrongID(err error) bool {
	if _, ok := errors.AsType[*notebook.NoCellError](err); ok {
		return true
	}
	return errors.Is(err, remoterun.ErrNoSuchRun) || errors.Is(err, remoterun.ErrAmbiguous)
}

// interrupted replaces the error of a request that a signal ended: that the VM did not answer
// in time is not its cause.
func interrupted(ctx context.Context, err error) error {
	_, unanswered := errors.AsType[*client.Error](err)
	if ctx.Err() == nil || errors.Is(err, remoterun.ErrStillRunning) || !unanswered && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return terminal.ErrInterrupted
}

// finish prints an error of cmd and its next step, and returns the exit code.
func finish(err error, cmd *cobra.Command, std terminal.Streams) int {
	code := exitCode(err)
	if _, silent := errors.AsType[remoterun.ExitCode](err); err == nil || silent || errors.Is(err, remoterun.ErrPrinted) {
		return code
	}
	step := hint.Person(err)
	if code == exitUsage && !isWrongID(err) {
		step = fmt.Sprintf("run `%s --help`", cmd.CommandPath())
	}
	fmt.Fprintf(std.Err, "%s: %s\n", cmd.Root().Name(), plain.Text(err.Error()))
	if step != "" {
		fmt.Fprintf(std.Err, "  next step: %s\n", plain.Line(step))
	}
	return code
}
