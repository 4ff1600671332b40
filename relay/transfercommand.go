package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

// transferCommand is what get and put have in common.
type transferCommand struct {
	set       *config.Settings
	std       terminal.Streams
	runtime   string
	overwrite bool
	asJSON    bool
	upload    bool
}

func (c *transferCommand) addFlags(cmd *cobra.Command) {
	addRuntimeFlag(cmd, &c.runtime)
	c.set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	addJSONFlag(cmd, &c.asJSON)
	cmd.Flags().BoolVar(&c.overwrite, "overwrite", false, `replace a different file of the same name; without this flag the new file is saved as "name (1).ext"`)
}

// run transfers something and shows the progress; name is what it transfers. It retries
// when the connection breaks, until ctx ends. If the VM does not answer at the beginning,
// it returns that error immediately.
func (c *transferCommand) run(ctx context.Context, name string, move func(context.Context, tools.Runtime, transfer.Options) (transfer.Result, error)) error {
	cfg := config.Load(*c.set)
	if err := cfg.Err(); err != nil {
		return err
	}
	var newest lastAttempt
	pool := runtimes.New(runtimes.Config{Getenv: c.set.Get, Pairings: cfg.Pairings, OnAttempt: newest.record, Transport: vmTransport(*c.set, cfg)})
	defer pool.Close()
	target, err := pool.Resolve(c.runtime)
	if err != nil {
		return err
	}
	if err := reach(ctx, target.Client); err != nil {
		return err
	}
	var meter progress.Meter
	display := terminal.NewProgress(c.std.Err, name, func() string { return progressLine(&meter, newest.failure(), time.Now()) })
	began := time.Now()
	r, err := move(ctx, target, transfer.Options{Overwrite: c.overwrite, ResumeDir: transfer.ResumeDir(cfg.CheckpointDir), Report: func(p transfer.Progress) {
		meter.Report(p)
		display.Report(p)
	}})
	display.Close()
	for _, note := range r.Notes {
		fmt.Fprintf(c.std.Err, "note: %s\n", plain.Line(note))
	}
	switch {
	case err != nil && ctx.Err() != nil:
		p, _ := meter.Last()
		return fmt.Errorf("stopped at %s: run the same command again to resume", progress.Share(p.Done, p.Total))
	case err != nil:
		return err
	}
	if c.asJSON {
		return printJSON(c.std.Out, transferred(target.Name, c.upload, r))
	}
	_, err = fmt.Fprintln(c.std.Out, summary(r, time.Since(began)))
	return err
}

// lastAttempt keeps the outcome of the newest attempt to reach the VM: a transfer
// retries, and reports an error only when it ends.
type lastAttempt struct {
	mu  sync.Mutex
	err error
}

func (l *lastAttempt) record(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// failure is nil if the newest attempt succeeded.
func (l *lastAttempt) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// progressLine describes the progress of a transfer. During an outage it gives the reason
// instead of the speed.
func progressLine(meter *progress.Meter, failure error, now time.Time) string {
	p, at := meter.Last()
	switch {
	case failure == nil || now.Sub(at) <= terminal.QuietTime:
		return meter.Describe(now)
	case p.Total == 0:
		return fmt.Sprintf("waiting for the VM: %v", failure)
	}
	return fmt.Sprintf("%s, waiting for the VM: %v", progress.Share(p.Done, p.Total), failure)
}
