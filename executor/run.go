package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// run is the whole program; it returns the exit code. Only it reads the environment.
func run(ctx context.Context, args []string, getenv func(string) string, _ io.Reader, stdout, stderr io.Writer) int {
	switch first(args) {
	case "version":
		fmt.Fprintln(stdout, version)
		return 0
	case "doctor":
		getenv = takeEnvironment(getenv)
		r := &report{w: stdout, environ: os.Environ()}
		return r.doctor(ctx, args[1:], getenv, stderr)
	}
	cfg, err := parseConfig(args, takeEnvironment(getenv), stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		complain(stderr, err)
		return 2
	}
	return serve(ctx, cfg, os.Environ(), stdout, stderr)
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// complain writes each of the faults on a line of its own.
func complain(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(w, "executor:", line)
	}
}

// serve runs the executor until a signal, a shutdown request or a fault ends it.
func serve(ctx context.Context, cfg config, environ []string, stdout, stderr io.Writer) int {
	started := time.Now()
	private := keepPrivate()
	out, errs := newConsole(stdout), newConsole(stderr)
	defer errs.close()
	defer out.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	again := watchSignals(stop)

	state, err := openState(cfg.stateDir)
	if err != nil {
		complain(errs, err)
		return 1
	}
	defer state.close()
	file, err := openLogFile(state.path("executor.log"))
	if err != nil {
		complain(errs, err)
		return 1
	}
	defer file.close()

	log := newLog(file, errs)
	if private != nil {
		log.Warn("the kernel's code can read the executor's secrets", "component", "executor", "err", private)
	}
	whole, ended := context.WithCancel(context.WithoutCancel(ctx)) // the drain included
	defer ended()
	watchHangUp(whole, log, out, errs)
	notice := newNotice(cfg, state.instanceID, out, log)
	defer notice.ready.remove()
	x := &executor{cfg: cfg, state: state, file: file, environ: environ, started: started, start: rand.Text(), log: log, notice: notice}
	done := make(chan error, 1)
	go func() { done <- x.run(ctx) }()
	select {
	case err = <-done:
	case <-again:
		err = errSecondSignal
	}
	if err != nil {
		complain(errs, err)
		return 1
	}
	fmt.Fprintln(out, "stopped; past executions are kept in", cfg.stateDir)
	return 0
}

var errSecondSignal = errors.New("ended at once, on a second signal")
