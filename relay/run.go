package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/tools"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

const (
	// firstWait lets a quick run be one request; longer ones print from then on.
	firstWait = 500 * time.Millisecond
	// lastWait is how long a run that was interrupted may take to end: an executor
	// gives the code 10 s to yield.
	lastWait = 15 * time.Second
	// maxCode leaves room for JSON's escapes within contract.MaxBodyBytes.
	maxCode = 4 << 20
)

// errTold is an outcome that was printed already.
var errTold = errors.New("told already")

// errNoInput ends a run that asks for input where nobody can give it: it would hold
// the kernel for an hour.
var errNoInput = errors.New("the code asks for input, and stdin has none to give")

func runCommand(set *settings, std streams) *cobra.Command {
	var code, runtime string
	timeout := contract.MaxTimeout
	cmd := &cobra.Command{
		Use:   "run [FILE | -c CODE]",
		Short: "Run Python on the VM and print what it prints; Ctrl-C interrupts it there",
		Long: "Run a file, or CODE, or what stdin holds, in the VM's kernel, and print what it prints as it comes.\n" +
			"The exit code is 0 when it succeeded, what the code gave sys.exit, else 1. Ctrl-C interrupts the run on the VM; variables stay. A second Ctrl-C ends this program only.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, fromStdin, err := codeOf(code, cmd.Flags().Changed("code"), args, std.in)
			if err != nil {
				return err
			}
			if strings.TrimSpace(text) == "" {
				return errors.New("nothing to run: the code is empty")
			}
			r := &remoteRun{std: std, inputUsed: fromStdin, timeout: timeout, lastWait: lastWait}
			return r.run(cmd.Context(), set, runtime, text)
		},
	}
	cmd.Flags().StringVarP(&code, "code", "c", "", "the code to run")
	cmd.Flags().StringVar(&runtime, "runtime", "", "the paired runtime to use, when it is not the default one")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "time after which the code is interrupted")
	return cmd
}

// codeOf is what to run, and whether stdin held it.
func codeOf(code string, given bool, args []string, stdin io.Reader) (text string, fromStdin bool, err error) {
	if given {
		if len(args) > 0 {
			return "", false, errors.New("give either a file or -c CODE, not both")
		}
		return code, false, nil
	}
	in, fromStdin := stdin, len(args) == 0 || args[0] == "-"
	if !fromStdin {
		f, err := os.Open(args[0])
		if err != nil {
			return "", false, err
		}
		defer f.Close()
		in = f
	} else if f, ok := stdin.(*os.File); ok && len(args) == 0 && term.IsTerminal(int(f.Fd())) {
		return "", false, errors.New("nothing to run: give a file, -c CODE, or code on stdin")
	}
	b, err := bounded.ReadAll(in, maxCode)
	if errors.Is(err, bounded.ErrTooLong) {
		return "", false, fmt.Errorf("the code is %v: put data into a file on the VM (`relay put`)", err)
	}
	if err != nil {
		return "", false, fmt.Errorf("read the code: %v", err)
	}
	return string(b), fromStdin, nil
}

// remoteRun is one run under way.
type remoteRun struct {
	std       streams
	inputUsed bool          // stdin held the code
	timeout   time.Duration // of the run, on the VM
	lastWait  time.Duration // for its end, after an interrupt

	client   *client.Client
	lives    tools.LastSeen
	runtime  string
	instance string // the VM it was started on
	out      *printer
	answer   contract.Execution // to the submit; once it is printed, its id alone
	exec     contract.Execution // as last printed, without events
}

func (r *remoteRun) run(ctx context.Context, set *settings, runtime, code string) error {
	cfg := load(*set)
	if len(cfg.problems) > 0 {
		return fmt.Errorf("wrong settings: %v", errors.Join(cfg.problems...))
	}
	runtimes := newRuntimes(set.get, cfg.pairings, slog.New(&patience{out: r.std.err}))
	defer runtimes.close()
	target, err := runtimes.resolve(runtime)
	if err != nil {
		return err
	}
	// A broken pipe is to be an error of the write: the signal would end this program,
	// and the run would hold the kernel.
	signal.Ignore(syscall.SIGPIPE)
	r.client = target.Client
	r.runtime, r.lives = target.Name, runtimes.lives(byPeople)
	r.out = newPrinter(r.std, cfg.saveDir)
	if err := reach(ctx, r.client); err != nil {
		return err
	}
	if err := r.submit(ctx, code); err != nil {
		return err
	}
	defer r.out.close()
	if err := r.follow(ctx); err != nil {
		return err
	}
	return r.outcome()
}

// submit starts the run. It goes on a moment past the end of ctx: only who knows the
// run's id can interrupt it.
func (r *remoteRun) submit(ctx context.Context, code string) error {
	submitting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(checkTime, cancel) })
	defer stop()
	e, err := r.client.Submit(submitting, contract.Submit{Code: code, TimeoutSeconds: r.timeout.Seconds(), WaitSeconds: firstWait.Seconds()})
	if err != nil {
		return r.replaced(err)
	}
	r.instance = r.client.InstanceID()
	r.answer = e
	if e.Status == contract.StatusQueued && e.QueuePosition > 0 {
		fmt.Fprintf(r.std.err, "relay: waiting for %d run(s) before this one\n", e.QueuePosition)
	}
	return nil
}

// follow reads on until the run has ended. Where nobody reads on, as ctx ended or
// stdout broke, it ends the run.
func (r *remoteRun) follow(ctx context.Context) error {
	for !r.exec.End && r.out.broken == nil {
		err := r.readOn(ctx)
		switch {
		case ctx.Err() != nil:
			return r.finish(ctx)
		case errors.Is(err, errNoInput):
			fmt.Fprintln(r.std.err, "relay: interrupting the run on the VM")
			return errors.Join(err, r.interrupt(ctx))
		case err != nil:
			return err
		}
	}
	switch {
	case r.out.broken == nil:
		return nil
	case r.exec.End:
		return fmt.Errorf("stdout can't be written to: %v", r.out.broken)
	}
	if err := r.finish(ctx); err != nil {
		return fmt.Errorf("stdout can't be written to (%v): %w", r.out.broken, err)
	}
	return fmt.Errorf("stdout can't be written to (%v): the run ended as %s on the VM", r.out.broken, r.exec.Status)
}

// finish interrupts the run and waits a little for its last words; a signal ends the
// wait.
func (r *remoteRun) finish(ctx context.Context) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.lastWait)
	defer cancel()
	hurried, stop := signal.NotifyContext(last, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if r.out.broken == nil {
		fmt.Fprintln(r.std.err, "relay: interrupting the run on the VM")
	}
	err := r.interrupt(hurried)
	if err != nil {
		err = fmt.Errorf("it could not be interrupted: %w", err)
	}
	for err == nil && !r.exec.End {
		err = r.readOn(hurried)
	}
	switch {
	case err == nil, isNewInstance(err):
		return err
	case hurried.Err() != nil && last.Err() == nil:
		return fmt.Errorf("the run may still go on there, as %s: a second signal ended the wait for it", r.answer.ExecutionID)
	}
	return fmt.Errorf("the run may still go on there, as %s: %w", r.answer.ExecutionID, err)
}

// readOn answers the input request that the code waits for, if any, and prints events
// until the next one, the end of the run, or a write to stdout that fails.
func (r *remoteRun) readOn(ctx context.Context) error {
	if err := r.input(ctx); err != nil {
		return err
	}
	alreadyBroken, answer := r.out.broken != nil, r.answer
	r.answer = contract.Execution{ExecutionID: answer.ExecutionID}
	_, err := client.Follow(ctx, r.client, answer, client.FollowOptions{
		From: r.exec.NextOffset,
		Visit: func(e contract.Execution) bool {
			r.take(ctx, e)
			return alreadyBroken || r.out.broken == nil
		},
	})
	return r.replaced(err)
}

func (r *remoteRun) interrupt(ctx context.Context) error {
	_, err := r.client.Interrupt(ctx, r.answer.ExecutionID)
	return r.replaced(err)
}

// take prints an answer's events.
func (r *remoteRun) take(ctx context.Context, e contract.Execution) {
	events := e.Events
	e.Events = nil
	if e.KernelID != r.exec.KernelID {
		r.sawKernel(e.KernelID)
	}
	r.exec = e
	for _, ev := range events {
		r.out.event(ctx, r.client, e.ExecutionID, ev)
	}
}

// input asks the person for what the code waits for.
func (r *remoteRun) input(ctx context.Context) error {
	if r.exec.Status != contract.StatusWaitingForInput {
		return nil
	}
	if r.inputUsed {
		return errNoInput
	}
	text, err := r.out.ask(ctx, r.std.in)
	if err != nil {
		return err
	}
	_, err = r.client.Input(ctx, r.answer.ExecutionID, text)
	return r.replaced(err)
}

// exitCode is the outcome of code that called sys.exit, which was printed.
type exitCode int

// Error implements error.
func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// outcome is the error of a run that did not succeed. What Python raised was printed.
func (r *remoteRun) outcome() error {
	switch r.exec.Status {
	case contract.StatusSucceeded:
		return nil
	case contract.StatusFailed:
		return raised(r.exec.Error)
	}
	return &endedError{r.exec.Status, plain.Line(r.exec.Reason)}
}

// endedError is the outcome of a run that ended badly, apart from exceptions.
type endedError struct {
	status contract.Status
	reason string
}

// Error implements error.
func (e *endedError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("the run ended as %s: %s", e.status, e.reason), ": ")
}

// Outcome is the status, from which package hint derives the next step.
func (e *endedError) Outcome() contract.Status { return e.status }

// raised is the outcome of an exception: sys.exit with nothing or 0 is none, and with
// 1 to 255 gives that exit code, as if the code ran here.
func raised(e *contract.ExecutionError) error {
	if e == nil || e.EName != "SystemExit" {
		return errTold
	}
	if e.EValue == "" || e.EValue == "None" {
		return nil
	}
	switch code, err := strconv.ParseUint(e.EValue, 10, 8); {
	case err != nil:
		return errTold
	case code == 0:
		return nil
	default:
		return exitCode(code)
	}
}
