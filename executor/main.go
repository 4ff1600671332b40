// Command executor runs on the VM: it keeps an ipykernel alive and serves it over a tunnel,
// signed and encrypted.
//
// This package is wiring only: settings, the order of start and end, and what a
// person at the console sees. Start reading at run, then at executor.run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"colabrelay/shared/console"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

// programName is the name of this program's file, which a person types.
var programName = filepath.Base(os.Args[0])

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program; it returns the exit code. Only run reads the
// environment.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 && slices.Contains([]string{"version", "--version", "doctor", "enroll"}, args[0]) {
		command, args = args[0], args[1:]
	}
	if command == "version" || command == "--version" {
		fmt.Fprintln(stdout, version)
		return 0
	}
	getenv = withholdSecrets(getenv)
	if command == "enroll" {
		return enroll(ctx, args, getenv, stdin, stdout, stderr)
	}
	cfg, err := parseConfig(args, getenv, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		complain(stderr, err)
		return 2
	}
	if command == "doctor" {
		return doctor(ctx, cfg, stdout)
	}
	if serve(ctx, cfg, os.Environ(), stdout, stderr) != nil {
		return 1
	}
	return 0
}

// complain writes each fault on a separate line.
func complain(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(w, "executor:", line)
	}
}

// secondSignal is how long after the first signal another one means "immediately":
// Colab's stop button sends SIGINT twice within milliseconds.
const secondSignal = time.Second

// startedInCell reports whether a cell of a notebook started the executor: Jupyter sets the variable
// for its kernels, which pass it on.
func startedInCell(getenv func(string) string) bool { return getenv("JPY_PARENT_PID") != "" }

// watchSignals calls stop on the first SIGINT or SIGTERM, and in a notebook's cell on SIGHUP: two
// presses of the stop button can end the cell without a signal to the executor, which nobody could
// stop any more. The channel that it returns is closed on a later signal. A signal that nohup
// ignores remains ignored: signal.Notify would enable it again, and the executor would die with its
// terminal.
func watchSignals(inCell bool, stop func()) (second <-chan struct{}) {
	got := make(chan os.Signal, 8)
	stopping := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if inCell {
		stopping = append(stopping, syscall.SIGHUP)
	}
	for _, sig := range stopping {
		if !signal.Ignored(sig) {
			signal.Notify(got, sig)
		}
	}
	again := make(chan struct{})
	go func() {
		<-got
		first := time.Now()
		stop()
		for range got {
			if time.Since(first) >= secondSignal {
				close(again)
				return
			}
		}
	}()
	return again
}

// watchHangUp stops writing to the consoles when the terminal has gone away (SIGHUP),
// until ctx ends: a lost SSH session must not end a run. From then on it catches
// SIGPIPE as well, because Go would end the program at its next write to a pipe that
// has no reader. If nohup ignores SIGHUP, it remains ignored. The handler is never
// removed: another SIGHUP, sent along with a SIGTERM, must not cut the shutdown short.
func watchHangUp(ctx context.Context, log *slog.Logger, consoles ...*console.Writer) {
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	hung := make(chan os.Signal, 1)
	signal.Notify(hung, syscall.SIGHUP)
	go func() {
		select {
		case <-hung: // once is enough: the consoles stay dropped
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			for _, c := range consoles {
				c.Drop()
			}
			log.Info("the terminal has gone away (SIGHUP); the executor continues and logs to this file only", "component", "executor", "pid", os.Getpid())
		case <-ctx.Done():
		}
	}()
}
