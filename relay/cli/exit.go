package cli

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
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
)

// Exit codes. Those above 1 are the ones of BSD's sysexits.h. `run` also returns the code
// that the program on the VM gave to sys.exit.
const (
	ExitFailure     = 1
	ExitUsage       = 64 // EX_USAGE
	exitUnreachable = 69 // EX_UNAVAILABLE
	ExitRunning     = 75 // EX_TEMPFAIL
)

// usageError is an error in the command line itself: nothing was tried.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

// Usagef returns a usageError.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// AsUsage makes err an error in the command line.
func AsUsage(err error) error { return usageError{err} }

// reportedError is an error whose next step was printed before.
type reportedError struct {
	error
	code int // the exit code
}

// Reported returns err as the error of a command that printed the next step. code is its exit code.
func Reported(err error, code int) error { return reportedError{err, code} }

// unreachable are the kinds of errors after which the same command may work once the VM
// answers. The others need a person to correct something first.
var unreachable = map[client.Kind]bool{
	client.KindUnreachable:   true,
	client.KindNoSuchHost:    true,
	client.KindTunnelOffline: true,
	client.KindTunnelQuota:   true,
	client.KindTunnelError:   true,
	client.KindNotExecutor:   true, // such as the login page of a hotel's network
	client.KindIntercepted:   true,
	client.KindProxy:         true,
	client.KindTooLarge:      false,
	client.KindBadAnswer:     true,
	client.KindTimeout:       true,
	client.KindRateLimited:   true,
	client.KindWrongSecret:   false,
	client.KindWrongProtocol: false,
}

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[remoterun.ExitCode](err); ok {
		return int(exit)
	}
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, pairing.ErrBadName) || errors.Is(err, auth.ErrPairing) || isWrongID(err) {
		return ExitUsage
	}
	if reported, ok := errors.AsType[reportedError](err); ok {
		return reported.code
	}
	if errors.Is(err, runlist.ErrStillRunning) { // before a lost connection: a script must not run the code again
		return ExitRunning
	}
	if _, ok := errors.AsType[*page.NoTabError](err); ok {
		return exitUnreachable
	}
	if lost, ok := errors.AsType[*client.Error](err); ok && unreachable[lost.Kind] {
		return exitUnreachable
	}
	return ExitFailure
}

// isWrongID reports whether err is about the id of a run or a cell that a person gave.
func isWrongID(err error) bool {
	return errors.Is(err, notebook.ErrNoCell) || errors.Is(err, runlist.ErrNoSuchRun) || errors.Is(err, runlist.ErrAmbiguous)
}

// Interrupted replaces the error of a request that a signal ended: that the VM did not answer
// in time is not its cause.
func Interrupted(ctx context.Context, err error) error {
	_, unanswered := errors.AsType[*client.Error](err)
	if ctx.Err() == nil || errors.Is(err, runlist.ErrStillRunning) || !unanswered && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return terminal.ErrInterrupted
}

// Finish prints an error of cmd and its next step, and returns the exit code.
func Finish(err error, cmd *cobra.Command, std terminal.Streams) int {
	code, wrongName := ExitCode(err), isWrongID(err)
	if namesRuntime := cmd.Flags().Changed("runtime"); namesRuntime && errors.Is(err, pairing.ErrNotPaired) {
		code, wrongName = ExitUsage, true
	}
	if _, silent := errors.AsType[remoterun.ExitCode](err); err == nil || silent || errors.Is(err, remoterun.ErrPrinted) {
		return code
	}
	step := hint.Person(err)
	if code == ExitUsage && !wrongName {
		step = fmt.Sprintf("run `%s --help`", cmd.CommandPath())
	}
	fmt.Fprintf(std.Err, "%s: %s\n", cmd.Root().Name(), plain.Text(err.Error()))
	if step != "" {
		fmt.Fprintf(std.Err, "  next step: %s\n", plain.Line(step))
	}
	return code
}
