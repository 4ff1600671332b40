package main

import (
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
