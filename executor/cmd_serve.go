package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/executor/logfile"
	"colabrelay/executor/statedir"
	"colabrelay/shared/bounded"
	"colabrelay/shared/console"
	"colabrelay/shared/keep"
)

// memoryGoal is how many bytes the executor takes before Go collects garbage more often instead
// of letting the heap double. Its bounds together are below it: above all, the share of
// executor/jupyter for big messages, 280 MiB.
const memoryGoal = 450 << 20

// serve runs the executor until a signal or a fault ends it.
// It returns its error after it has shown it, below everything else.
func serve(ctx context.Context, cfg config, environ []string, stdout, stderr io.Writer) error {
	if !slices.ContainsFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, "GOMEMLIMIT=") }) {
		debug.SetMemoryLimit(memoryGoal)
	}
	out, errs := console.New(stdout), console.New(stderr)
	err := serveOn(ctx, cfg, environ, out, errs)
	endConsole(out, errs, err)
	return err
}

// endConsole shows what is still to be shown, and then the fault.
func endConsole(out, errs *console.Writer, fault error) {
	out.Close()
	if fault != nil {
		complain(errs, fault)
	}
	errs.Close()
}

// serveOn is serve without the end of the console.
func serveOn(ctx context.Context, cfg config, environ []string, out, errs *console.Writer) error {
	started := time.Now()
	notPrivate := errors.Join(keepPrivate(), keepDescriptors())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	second := watchSignals(cfg.inCell, stop)

	state, err := statedir.Open(cfg.stateDir)
	if err != nil {
		return err
	}
	defer state.Close()
	file, damage, err := openLog(state.Path("executor.log"))
	if err != nil {
		return err
	}
	defer file.Close()

	cfg.user = cfg.user.For(state.Place())
	environ = cfg.user.Environ(environ, cfg.workDir)
	log := newLog(file, errs)
	if notPrivate != nil {
		log.Warn("the kernel's code can read the executor's secrets", "component", "executor", "err", notPrivate)
	}
	adoptState(state, damage, log)
	untilEnd, end := context.WithCancel(context.WithoutCancel(ctx)) // includes the shutdown
	defer end()
	if !cfg.inCell {
		watchHangUp(untilEnd, log, out, errs)
	}
	records, err := cfg.audit.open(cfg.secret.KeyID(), state.InstanceID(), log)
	if err != nil {
		return err
	}
	notice := newNotice(cfg, state.InstanceID(), out, log)
	notice.restarted = hasRun(state)
	defer notice.ready.remove()
	x := &executor{cfg: cfg, state: state, audit: records, environ: environ, started: started, start: rand.Text(), log: log, notice: notice}
	done := make(chan error, 1)
	go func() { done <- x.run(ctx) }()
	select {
	case err = <-done:
	case <-second:
		err = errors.New("stopped immediately after a second signal")
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "stopped; past executions are kept in", cfg.stateDir)
	return nil
}

// adoptState logs what is unusual about the state folder. The kernel that the record in a copied
// folder names belongs to another executor, so it is left alone.
func adoptState(state *statedir.Dir, logDamage error, log *slog.Logger) {
	for _, damage := range []error{state.Damage(), logDamage} {
		if damage != nil {
			log.Warn("a damaged file of the state folder was set aside", "component", "executor", "err", damage)
		}
	}
	if !state.Copied() {
		return
	}
	folder := state.Path("")
	log.Warn("the state folder is a copy of another executor's: this executor starts with a new instance_id, and relays treat it as a new VM", "component", "executor", "state_dir", folder)
	if err := kernel.ForgetLeftover(folder); err != nil {
		log.Warn("the copied record of the other executor's kernel can't be deleted; delete kernel.json in the state folder", "component", "executor", "err", err)
	}
}

// openLog opens the executor's log, up to 4 MiB with the file before it as PATH.1. What has its
// name and is not a file is kept under another one, of which damage tells.
func openLog(path string) (file *logfile.File, damage, err error) {
	cfg := logfile.Config{
		Path: path, MaxBytes: 4 << 20, Old: 1, Omitted: omittedLines,
		Open: func() (logfile.Disk, error) { return bounded.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR) },
	}
	if file, err = logfile.Open(cfg); errors.Is(err, bounded.ErrNotFile) {
		kept, moveErr := keep.Aside(path)
		if moveErr != nil {
			return nil, nil, moveErr
		}
		damage = fmt.Errorf("open the log: %w; it is kept as %q, and a new log was started", err, kept)
		file, err = logfile.Open(cfg)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	return file, damage, nil
}

// omittedLines is the line of the executor's log for lines that are not in it.
func omittedLines(count int, since time.Time, cause error) []byte {
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Warn("lines of this log are missing", "component", "executor", "count", count, "since", since, "err", cause)
	return line.Bytes()
}

// newLog logs everything to the file, where a person can later look up the
// request_id of an internal error, and warnings to the console as well: in a
// notebook cell the console is all that a person sees, and a line for every
// request would be too much there. The file is bounded, but what the console prints is not:
// there, repeated warnings are left out and counted.
func newLog(file, errs io.Writer) *slog.Logger {
	return slog.New(slog.NewMultiHandler(
		slog.NewJSONHandler(file, &slog.HandlerOptions{Level: slog.LevelInfo}),
		console.Sparse(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn})),
	))
}
