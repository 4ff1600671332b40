package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// maxCode leaves room for JSON's escapes within contract.MaxBodyBytes.
const maxCode = 4 << 20

// runOptions are the flags of `colab-relay run`.
type runOptions struct {
	code    string
	runtime string
	timeout time.Duration
}

func runCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := runOptions{timeout: contract.MaxTimeout}
	cmd := &cobra.Command{
		Use:   "run [FILE | -c CODE]",
		Short: "Run Python on the VM and print its output; Ctrl-C interrupts it",
		Long: "Run a file, CODE or the code on stdin in the VM's kernel, and print its output as it arrives.\n" +
			"Ctrl-C interrupts the code on the VM; the kernel keeps its variables. A second Ctrl-C ends only this program.\n" +
			"The exit code is 0 if the code succeeded, the value that it passed to sys.exit (up to 255), and otherwise 1.",
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout < 0 || o.timeout > contract.MaxTimeout {
				return usagef("--timeout %s: must be from 0 to 24h", o.timeout)
			}
			code, fromStdin, err := o.read(cmd.Flags().Changed("code"), args, std.In)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), set, remoterun.Code{Text: code, FromStdin: fromStdin, Timeout: o.timeout}, std)
		},
	}
	cmd.Flags().StringVarP(&o.code, "code", "c", "", "the code to run")
	addRuntimeFlag(cmd, &o.runtime)
	set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "interrupt the code after this time, at most 24h; 0 means 10m")
	return cmd
}

func (o runOptions) run(ctx context.Context, set *config.Settings, code remoterun.Code, std terminal.Streams) error {
	cfg := config.Load(*set)
	if err := cfg.Err(); err != nil {
		return err
	}
	outage := &terminal.Outage{Out: std.Err}
	kept := openHistory(cfg, nil)
	defer kept.close()
	pool := runtimes.New(runtimes.Config{Getenv: set.Get, Pairings: cfg.Pairings, OnAttempt: outage.Attempt, Record: kept.record()})
	defer pool.Close()
	target, err := pool.Resolve(o.runtime)
	if err != nil {
		return err
	}
	if err := reach(ctx, target.Client); err != nil {
		return err
	}
	// Writing to a broken pipe must be an error: the signal would end this program and
	// leave the code running.
	signal.Ignore(syscall.SIGPIPE)
	vm := remoterun.VM{Runtime: target.Name, Client: target.Client, LastSeen: pool.LastSeen(runtimes.People)}
	return remoterun.Run(ctx, vm, code, remoterun.Console{Streams: std, PictureDir: cfg.SaveDir})
}

// read returns the code to run, and whether it was read from stdin.
func (o runOptions) read(given bool, args []string, stdin io.Reader) (code string, fromStdin bool, err error) {
	in := stdin
	switch {
	case given && len(args) > 0:
		return "", false, usagef("give either a file or -c CODE, not both")
	case given:
		in = strings.NewReader(o.code)
	case len(args) == 0 && terminal.Is(stdin):
		return "", false, usagef("nothing to run: give a file, -c CODE, or code on stdin")
	case len(args) == 0 || args[0] == "-":
		fromStdin = true
	default:
		f, err := os.Open(args[0])
		if err != nil {
			return "", false, fmt.Errorf("%w: name a file on this computer, or give code with -c", err)
		}
		defer f.Close()
		in = f
	}
	b, err := bounded.ReadAll(in, maxCode)
	switch {
	case errors.Is(err, bounded.ErrTooLong):
		return "", false, fmt.Errorf("the code is %v: put data into a file on the VM with `colab-relay put`", err)
	case err != nil:
		return "", false, fmt.Errorf("read the code: %v", err)
	case strings.TrimSpace(string(b)) == "":
		return "", false, errors.New("nothing to run: the code is empty")
	}
	return string(b), fromStdin, nil
}
