package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/tools"
	"colabrelay/relay/transfer"
)

// stillFor is how long nothing may move before the display says why.
const stillFor = 2 * time.Second

// move is what get and put share.
type move struct {
	set       *settings
	std       streams
	runtime   string
	overwrite bool
}

func (m *move) flags(fs *pflag.FlagSet) {
	fs.StringVar(&m.runtime, "runtime", "", "the paired runtime to use, when it is not the default one")
	fs.BoolVar(&m.overwrite, "overwrite", false, `replace a different file of that name; else the new one gets a number: "name (1).ext"`)
}

// way moves something between the laptop and a VM.
type way func(ctx context.Context, vm tools.Runtime, o transfer.Options) (transfer.Result, error)

// run goes one way and shows it; name is what moves. It goes on through cuts until
// all has moved or ctx ends; a VM that does not answer at first is an error at once.
func (m *move) run(ctx context.Context, name string, there way) error {
	cfg := load(*m.set)
	if len(cfg.problems) > 0 {
		return fmt.Errorf("wrong settings: %v", errors.Join(cfg.problems...))
	}
	vm := &away{}
	runtimes := newRuntimes(m.set.get, cfg.pairings, slog.New(vm))
	defer runtimes.close()
	target, err := runtimes.resolve(m.runtime)
	if err != nil {
		return err
	}
	if err := reach(ctx, target.Client); err != nil {
		return err
	}
	var meter progress.Meter
	shown := newDisplay(m.std.err, name, func() string { return standing(&meter, vm, time.Now()) })
	began := time.Now()
	r, err := there(ctx, target, transfer.Options{Overwrite: m.overwrite, ResumeDir: transfer.ResumeDir(cfg.checkpointDir), Report: func(p transfer.Progress) {
		meter.Report(p)
		shown.report(p)
	}})
	shown.close()
	for _, note := range r.Notes {
		fmt.Fprintf(m.std.err, "note: %s\n", plain.Line(note))
	}
	switch {
	case err != nil && ctx.Err() != nil:
		p, _ := meter.Last()
		return fmt.Errorf("stopped at %s: the same command goes on from there", progress.Share(p.Done, p.Total))
	case err != nil:
		return err
	}
	fmt.Fprintln(m.std.out, summary(r, time.Since(began)))
	return nil
}

// reach asks the VM once, so that a wrong address ends the command and is not
// tried for ever.
func reach(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	_, err := c.Kernel(ctx)
	return err
}

// standing is what the display says now.
func standing(t *progress.Meter, vm *away, now time.Time) string {
	p, at := t.Last()
	why := vm.reason()
	switch {
	case why == "" || now.Sub(at) <= stillFor:
		return t.Describe(now)
	case p.Total == 0:
		return "waiting for the VM: " + why
	}
	return fmt.Sprintf("%s, waiting for the VM: %s", progress.Share(p.Done, p.Total), why)
}

// summary is the last line: where it is, how much, how long it took.
func summary(r transfer.Result, took time.Duration) string {
	parts := []string{progress.Bytes(r.SizeBytes)}
	if r.IsDir {
		parts = []string{fmt.Sprintf("%d files", r.Files), progress.Bytes(r.SizeBytes)}
		if r.Skipped > 0 {
			parts = append(parts, fmt.Sprintf("%d unchanged", r.Skipped))
		}
	}
	switch {
	case r.Skipped == r.Files && !r.IsDir:
		parts = append(parts, "unchanged")
	case r.ResumedFrom > 0:
		parts = append(parts, fmt.Sprintf("in %s, resumed from %s", progress.Duration(took), progress.Bytes(r.ResumedFrom)))
	default:
		parts = append(parts, "in "+progress.Duration(took))
	}
	if r.SHA256 != "" {
		parts = append(parts, "SHA-256 "+r.SHA256)
	}
	return plain.Line(r.Path) + ": " + strings.Join(parts, ", ")
}
