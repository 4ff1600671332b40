package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

const (
	// firstWait lets a quick run be one request; longer ones print from then on.
	firstWait = 500 * time.Millisecond
	// lastWait is how long a run that was interrupted may take to end: an executor
	// gives the code 10 s to yield.
	lastWait = 15 * time.Second
	// quickAnswer marks a run that prints all the time: its answers are spaced out by a
	// tenth of the time it has taken, at most maxPause, or it would cost 20 requests a
	// second.
	quickAnswer = 500 * time.Millisecond
	maxPause    = 2 * time.Second
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
			"The exit code is 0 when it succeeded, else 1. Ctrl-C interrupts the run on the VM; variables stay. A second Ctrl-C ends this program only.",
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
	b, err := io.ReadAll(io.LimitReader(in, maxCode+1))
	if err != nil {
		return "", false, fmt.Errorf("read the code: %v", err)
	}
	if len(b) > maxCode {
		return "", false, fmt.Errorf("the code is over %d MiB: put data into a file on the VM (`relay put`)", maxCode>>20)
	}
	return string(b), fromStdin, nil
}

// remoteRun is one run under way.
type remoteRun struct {
	std       streams
	inputUsed bool          // stdin held the code
	timeout   time.Duration // of the run, on the VM
	lastWait  time.Duration // for its end, after an interrupt

	client *client.Client
	out    *printer
	exec   contract.Execution // as last heard of, without events
	begun  time.Time
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
	r.client, r.begun = target.Client, time.Now()
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
		return err
	}
	r.take(ctx, e)
	if e.Status == contract.StatusQueued && e.QueuePosition > 0 {
		fmt.Fprintf(r.std.err, "relay: waiting for %d run(s) before this one\n", e.QueuePosition)
	}
	return nil
}

// follow reads on until the run has ended. When ctx ends it interrupts the run and
// waits a little for its last words.
func (r *remoteRun) follow(ctx context.Context) error {
	reading := ctx
	for !r.exec.End {
		err := r.readOn(reading)
		switch {
		case ctx.Err() == nil:
			if errors.Is(err, errNoInput) {
				err = errors.Join(err, r.interrupt(ctx))
			}
			if err != nil {
				return err
			}
		case reading == ctx:
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.lastWait)
			defer cancel()
			reading = last
			if err := r.interrupt(last); err != nil {
				return fmt.Errorf("the run goes on, as %s: it could not be interrupted: %w", r.exec.ExecutionID, err)
			}
		case err != nil:
			return fmt.Errorf("the run goes on, as %s: %w", r.exec.ExecutionID, err)
		}
	}
	return nil
}

// readOn gives the code its input, where it waits for some, and takes the next events.
func (r *remoteRun) readOn(ctx context.Context) error {
	if err := r.input(ctx); err != nil {
		return err
	}
	asked := time.Now()
	e, err := r.client.Execution(ctx, r.exec.ExecutionID, r.exec.NextOffset, contract.MaxWait, 0)
	if err != nil {
		return err
	}
	r.take(ctx, e)
	r.pause(ctx, asked)
	return nil
}

func (r *remoteRun) interrupt(ctx context.Context) error {
	fmt.Fprintln(r.std.err, "relay: interrupting the run on the VM")
	_, err := r.client.Interrupt(ctx, r.exec.ExecutionID)
	return err
}

// take prints an answer's events.
func (r *remoteRun) take(ctx context.Context, e contract.Execution) {
	events := e.Events
	e.Events = nil
	r.exec = e
	for _, ev := range events {
		r.out.event(ctx, r.client, e.ExecutionID, ev)
	}
}

// input asks the person for what the code waits for.
func (r *remoteRun) input(ctx context.Context) error {
	if r.exec.Status != contract.StatusWaitingForInput || !r.out.asking {
		return nil
	}
	if r.inputUsed {
		return errNoInput
	}
	text, err := r.out.ask(ctx, r.std.in)
	if err != nil {
		return err
	}
	_, err = r.client.Input(ctx, r.exec.ExecutionID, text)
	return err
}

// pause spaces out the answers of a run that prints all the time.
func (r *remoteRun) pause(ctx context.Context, asked time.Time) {
	if r.exec.End || time.Since(asked) >= quickAnswer {
		return
	}
	timer := time.NewTimer(min(time.Since(r.begun)/10, maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// outcome is the error of a run that did not succeed. What Python raised was printed.
func (r *remoteRun) outcome() error {
	switch r.exec.Status {
	case contract.StatusSucceeded:
		return nil
	case contract.StatusFailed:
		return errTold
	}
	if r.exec.Reason == "" {
		return fmt.Errorf("the run ended as %s", r.exec.Status)
	}
	return fmt.Errorf("the run ended as %s: %s", r.exec.Status, printable(r.exec.Reason))
}
