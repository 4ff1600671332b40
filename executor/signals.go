package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// secondSignal is how long after the first one a signal means "at once": Colab's
// stop button sends SIGINT twice within milliseconds.
const secondSignal = time.Second

// watchSignals calls stop on the first SIGINT or SIGTERM; the channel it returns is
// closed on a later one. A signal that nohup had ignored stays ignored:
// signal.Notify would take it back, and the executor would die with its terminal.
func watchSignals(stop func()) (again <-chan struct{}) {
	got := make(chan os.Signal, 8)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		if !signal.Ignored(sig) {
			signal.Notify(got, sig)
		}
	}
	second := make(chan struct{})
	go func() {
		<-got
		first := time.Now()
		stop()
		for range got {
			if time.Since(first) >= secondSignal {
				close(second)
				return
			}
		}
	}()
	return second
}

// watchHangUp goes on without the consoles when the terminal has gone away, until ctx
// ends: the lost connection of an SSH session must not end a run. SIGPIPE is taken from
// then on, or Go would end the program at its next write to a pipe that nobody reads.
// nohup's choice to ignore SIGHUP stays. The signal is never given back: one more that
// comes with a SIGTERM must not cut the end short.
func watchHangUp(ctx context.Context, log *slog.Logger, consoles ...*console) {
	if signal.Ignored(syscall.SIGHUP) {
		return
	}
	hung := make(chan os.Signal, 1)
	signal.Notify(hung, syscall.SIGHUP)
	go func() {
		select {
		case <-hung: // once is enough: there is nothing left to drop
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			for _, c := range consoles {
				c.drop()
			}
			log.Info("the terminal has gone away (SIGHUP); the executor goes on and logs to this file alone", "component", "executor", "pid", os.Getpid())
		case <-ctx.Done():
		}
	}()
}
