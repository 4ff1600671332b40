package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"colabrelay/relay/bridge"
	"colabrelay/relay/config"
	"colabrelay/relay/page"
	"colabrelay/relay/plain"
)

// pageStart are the flags of `colab-relay page open` that start an executor.
type pageStart struct {
	executor bool
	bridge.Request
}

func (s *pageStart) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&s.executor, "start-executor", false, "also start the executor on the page's VM, and pair this computer with it")
	fs.StringVar(&s.Name, "name", "", "with --start-executor, the `NAME` of the runtime (default a free one)")
	fs.BoolVar(&s.StatusCell, "status-cell", false, "with --start-executor, leave a cell that runs as long as the executor, so that Colab does not count the page as idle; stopping it stops the executor")
}

// check refuses flags that need another one.
func (s *pageStart) check() error {
	if !s.executor && (s.Name != "" || s.StatusCell) {
		return usagef("--name and --status-cell need --start-executor")
	}
	return nil
}

// startedExecutor is what `colab-relay page open --start-executor` adds to its answer.
type startedExecutor struct {
	Runtime string   `json:"runtime"`
	URL     string   `json:"colab_url"`
	Already bool     `json:"already_running"`
	Notes   []string `json:"notes"`
}

// startExecutor starts an executor on the VM of the tab's notebook and pairs it. It prints
// each step. If the person interrupts it, it removes its cell before it returns.
func (o *pageOpener) startExecutor(ctx context.Context, cfg config.Config, tab *page.Tab) (*startedExecutor, error) {
	b := newBridge(*o.set, cfg.Pairings, nil)
	defer b.Close()
	paired, err := b.Start(ctx, tab, o.start.Request, func(step string) { fmt.Fprintln(o.std.Err, plain.Line(step)+" ...") })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &startedExecutor{Runtime: paired.Runtime.Name, URL: paired.Runtime.URL, Already: paired.Already, Notes: paired.Notes}, err
}

// print says what was started.
func (s *startedExecutor) print(o *pageOpener) {
	did := "Started the executor and paired"
	if s.Already {
		did = "The executor already runs and is paired as"
	}
	fmt.Fprintf(o.std.Out, "%s %q with %s.\n", did, s.Runtime, plain.Line(s.URL))
	for _, note := range s.Notes {
		fmt.Fprintf(o.std.Err, "note: %s\n", plain.Line(note))
	}
}
