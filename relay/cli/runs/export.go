package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/export"
	"colabrelay/relay/history"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// exportOptions are the flags of `colab-relay export`.
type exportOptions struct {
	choice runlist.Selection
	since  string
	force  bool
	asJSON bool
}

// ExportCommand returns `colab-relay export`.
func ExportCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := exportOptions{}
	cmd := &cobra.Command{
		Use:   "export FILE [ID...]",
		Short: "Write past runs as a notebook, as Markdown or as Python",
		Long: "Write runs that were submitted from this computer to FILE, oldest first. Its extension chooses the format:\n" +
			"  .ipynb  a Jupyter notebook with outputs and pictures\n" +
			"  .md     Markdown; the pictures go into a folder FILE_files beside it\n" +
			"  .py     Python cells; lines such as %pip and !ls become comments\n" +
			"ID may be the first characters of an id that `colab-relay ps` lists. Without IDs, --last or --since, it writes all runs on the runtime's latest VM. It also works after the VM is gone; if the VM answers, missing output is fetched first.",
		Example: "  colab-relay export work.ipynb\n  colab-relay export report.md --last 3\n  colab-relay export today.ipynb --since 8h --runtime work\n  colab-relay export --force fit.py 3f2a",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("FILE is missing; usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args, time.Now()); err != nil {
				return err
			}
			return o.export(cmd.Context(), set, args[0], std)
		},
	}
	cmd.Flags().IntVar(&o.choice.Last, "last", 0, "only the newest `NUMBER` runs of the runtime")
	cmd.Flags().StringVar(&o.since, "since", "", "only runs since `TIME`: 90m, 8h, 2026-01-31, or \"2026-01-31 15:00\"")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace FILE if it exists")
	cli.AddJSONFlag(cmd, &o.asJSON)
	cli.AddRuntimeFlagFor(cmd, &o.choice.Runtime, "export runs of the runtime `NAME` (default: that of the newest run)")
	return cmd
}

// parse checks the arguments.
func (o *exportOptions) parse(args []string, now time.Time) error {
	if _, err := export.Format(args[0]); err != nil {
		return cli.AsUsage(err)
	}
	o.choice.IDs = args[1:]
	switch {
	case o.choice.Last < 0:
		return cli.Usagef("--last %d: must be 1 or more", o.choice.Last)
	case len(o.choice.IDs) > 0 && (o.choice.Last > 0 || o.since != "" || o.choice.Runtime != ""):
		return cli.Usagef("IDs cannot be combined with --last, --since or --runtime")
	case o.since == "":
		return nil
	}
	var err error
	o.choice.Since, err = sinceTime(o.since, now)
	return err
}

// sinceTime reads a time that a person wrote: how long ago, or a date with or without a time.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, cli.Usagef("--since %q: use a duration such as 90m or 8h, or a date such as 2026-01-31 or \"2026-01-31 15:00\"", text)
}

func (o exportOptions) export(ctx context.Context, set *config.Settings, path string, std terminal.Streams) error {
	p, err := cli.OpenPastRuns(set, std)
	if err != nil {
		return err
	}
	defer p.Close()
	if p.History == nil {
		return errors.New("no runs are kept, because RELAY_HISTORY is off: unset it, and run the code again")
	}
	kept, err := p.History.List()
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		return errors.New("no runs yet: run code with `colab-relay run FILE`, or let an agent use the tools")
	}
	for i, beginning := range o.choice.IDs {
		run, err := runlist.Kept(p.History, beginning, "")
		if errors.Is(err, runlist.ErrNoSuchRun) {
			return fmt.Errorf("%w in this computer's history: %.80q; export writes only runs that were submitted from here", runlist.ErrNoSuchRun, beginning)
		}
		if err != nil {
			return err
		}
		o.choice.IDs[i] = run.ExecutionID
	}
	chosen := o.choice.Choose(kept)
	if len(chosen) == 0 {
		return errors.New("no run matches; `colab-relay ps --all` lists all runs")
	}
	var runs []history.Whole
	for _, r := range chosen {
		run, err := whole(ctx, p, r)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	err = export.Write(ctx, path, runs, o.force)
	if errors.Is(err, export.ErrExists) {
		return fmt.Errorf("%w: use --force to replace it", err)
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		done := exported{File: path, Runtime: cmp.Or(runs[0].Runtime, pairing.DefaultName), Runs: len(runs)}
		if absolute, err := filepath.Abs(path); err == nil {
			done.File = absolute
		}
		for _, run := range runs {
			done.ExecutionIDs = append(done.ExecutionIDs, run.ExecutionID)
		}
		return cli.PrintJSON(std.Out, done)
	}
	_, err = fmt.Fprintf(std.Err, "wrote %s of runtime %s to %s\n", plain.Count(len(runs), "run"), cmp.Or(plain.Line(chosen[0].Runtime), pairing.DefaultName), plain.Line(path))
	return err
}

// exported is the JSON of export.
type exported struct {
	File         string   `json:"file"` // absolute
	Runtime      string   `json:"runtime"`
	Runs         int      `json:"runs"`
	ExecutionIDs []string `json:"execution_ids"` // oldest first
}

// whole returns a run with its output, after it has fetched what is missing if the VM answers.
func whole(ctx context.Context, p *cli.PastRuns, run history.Run) (history.Whole, error) {
	r, err := p.History.Read(run)
	if err == nil && r.Lacks() {
		r, err = complete(ctx, p, r)
	}
	kept := r.Fetch
	r.Fetch = func(ctx context.Context, blob contract.Blob, w io.Writer) error {
		if err := kept(ctx, blob, w); !errors.Is(err, history.ErrNotFound) {
			return err
		}
		if vm := p.Reach(ctx, r.Runtime); vm != nil && vm.InstanceID() == r.InstanceID {
			return vm.Blob(ctx, r.ExecutionID, blob, w)
		}
		return history.ErrNotFound
	}
	return r, err
}

// completeTime bounds what is fetched of one run before an export: a hostile VM has output
// without end.
const completeTime = 5 * time.Minute

// complete returns a run after it has fetched what the history lacks and the VM has.
func complete(ctx context.Context, p *cli.PastRuns, r history.Whole) (history.Whole, error) {
	vm := p.Reach(ctx, r.Runtime)
	if vm == nil || vm.InstanceID() != r.InstanceID {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	now, err := p.History.Complete(ctx, vm, r)
	if err != nil {
		p.Note("the output of run %s may be incomplete: %v", r.ExecutionID, err)
	}
	return now, nil
}
