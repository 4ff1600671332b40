package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/export"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
)

// psOptions are the flags of `colab-relay ps`.
type psOptions struct {
	runtime string
	limit   int // 0 for none
	all     bool
	asJSON  bool
}

func psCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := psOptions{}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List runs, present and past",
		Long: "List the runs of all runtimes, newest first: those in this computer's history, and those on the VMs. It also works after a VM is gone. Ids are shortened; --json prints them whole.\n" +
			"A question mark after a status means that it may have changed since: the VM does not answer, or is gone.\n" +
			"Batches of chunked runs, and other code that the relay runs for itself, are listed only with --all.",
		Example: "  colab-relay ps\n  colab-relay ps -n 5 --runtime work\n  colab-relay ps --all --json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.limit < 1 {
				return usagef("-n %d: must be 1 or more", o.limit)
			}
			if o.all && !cmd.Flags().Changed("number") {
				o.limit = 0
			}
			return o.list(cmd.Context(), set, std)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().IntVarP(&o.limit, "number", "n", 20, "list at most `NUMBER` runs")
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "list all runs, also those that the relay made for itself")
	addRuntimeFlagFor(cmd, &o.runtime, "list only the runs of the runtime `NAME`")
	addJSONFlag(cmd, &o.asJSON)
	return cmd
}

func (o psOptions) list(ctx context.Context, set *config.Settings, std terminal.Streams) error {
	p, err := openPastRuns(set, std)
	if err != nil {
		return err
	}
	defer p.close()
	kept, err := p.history.runs()
	if err != nil {
		return err
	}
	kept = runlist.OfRuntime(kept, o.runtime)
	names := p.paired()
	if o.runtime != "" {
		if !slices.Contains(names, o.runtime) && len(kept) == 0 {
			_, err := pairing.Resolve(o.runtime, set.Get, p.store)
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name != o.runtime })
	}
	vms := p.live(ctx, names)
	if p.history.Store != nil {
		p.settle(kept, vms)
	}
	return o.print(runlist.Merge(kept, vms, time.Now()), std)
}

func (o psOptions) print(all []runlist.Entry, std terminal.Streams) error {
	entries := all
	if !o.all {
		entries = runlist.OfPeople(all)
	}
	more := o.limit > 0 && len(entries) > o.limit
	if more {
		entries = entries[:o.limit]
	}
	if o.asJSON {
		return printJSON(std.Out, struct {
			Executions []runlist.Entry `json:"executions"`
			Truncated  bool            `json:"truncated"`
		}{append([]runlist.Entry{}, entries...), more})
	}
	ids := runlist.ShortIDs(all)
	if len(entries) == 0 {
		fmt.Fprintln(std.Err, noRuns)
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "ID"}, terminal.Column{Title: "RUNTIME"}, terminal.Column{Title: "STATUS"},
		terminal.Column{Title: "WHEN"}, terminal.Column{Title: "TOOK", Right: true}, terminal.Column{Title: "CODE"})
	for _, e := range entries {
		status := e.Status
		if e.Unsure() {
			status += "?"
		}
		table.Add(ids[e.ExecutionID], e.Runtime, status, when(e.CreatedAt, time.Now()), tookOf(e), codeOf(e))
	}
	if err := table.Print(std.Out); err != nil || !more {
		return err
	}
	fmt.Fprintf(std.Err, "note: there are older runs; `colab-relay ps --all` lists them\n")
	return nil
}

func codeOf(e runlist.Entry) string {
	if e.Name != "" {
		return "[" + e.Name + "] " + e.CodePreview
	}
	return e.CodePreview
}

func tookOf(e runlist.Entry) string {
	if e.ExecutionTimeSec == nil {
		return "-"
	}
	return took(*e.ExecutionTimeSec)
}

// took returns a number of seconds, which an executor sent, as people write durations.
func took(seconds float64) string {
	return export.Took(time.Duration(min(seconds, math.MaxInt32) * float64(time.Second)))
}

// when returns a time in this computer's zone: the time of day today, else with the date.
func when(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		return t.Format("15:04:05")
	case t.Year() == now.Year():
		return t.Format("Jan _2 15:04")
	}
	return plain.Line(t.Format("2006-01-02"))
}
