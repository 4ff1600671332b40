package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"colabrelay/shared/console"
)

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
