package nb

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
)

// runOptions are the flags of `colab-relay nb run`.
type runOptions struct {
	cli.RunsCommand
	spec    nbrun.Spec
	values  []string // of --parameter
	outputs bool
}

func runCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := runOptions{RunsCommand: cli.RunsCommand{Set: set, Std: std}, spec: nbrun.Defaults("")}
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a notebook on the VM and write its outputs into it",
		Long: "Run the code cells of a notebook on the VM one after another, and write their outputs into the notebook as they come. The VM has the whole run: it goes on to its end without this computer.\n" +
			"After a cell has failed, no further cell runs, unless --on-error says otherwise.\n\n" +
			"If the command ends before the run, the same command continues it: no cell that was sent runs again. Cells that have not begun follow edits of the file. Ctrl-C interrupts the run; a second Ctrl-C leaves it running.\n" +
			"A module whose file changed stays as it was imported until a cell calls importlib.reload, or the kernel restarts. For the values of a fresh run, use --restart.\n" +
			"These tags of a cell have a meaning: skip-execution, raises-exception, force-execute (skip_dependants does not skip it), retries=NUMBER, no-retry, frozen (do not run it again in the same kernel), save-state (see --state-name), and timeout=SECONDS.\n" +
			"Parameters follow papermill's rules: they are assigned in a new cell below the one with the tag parameters. On lines with #@param they replace the value instead, but not in the file.\n\n" +
			"The exit code is 0 if no cell failed or was skipped, and otherwise 1; `colab-relay help exit-codes` lists the others.",
		Example: "  colab-relay nb run analysis.ipynb\n" +
			"  colab-relay nb run analysis.ipynb --output-path run1.ipynb -p epochs=10 -p name=test\n" +
			"  colab-relay nb run analysis.ipynb --cells dirty --dry-run     # which cells would run, and why\n" +
			"  colab-relay nb run analysis.ipynb --cells from:3f2a1b0c --on-error continue",
		Args:              cli.Arguments(1, 1),
		ValidArgsFunction: completeNotebooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.spec.Path = args[0]
			return o.run(cmd.Context(), cmd.Flags().Changed("parameters"))
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *runOptions) addFlags(cmd *cobra.Command) {
	f, s := cmd.Flags(), &o.spec
	cli.FileFlag(f, &s.OutputPath, "output-path", "write the outputs into this new `FILE`, a copy, and leave the notebook as it is")
	f.StringVar(&s.Cells, "cells", s.Cells, "which `CELLS`: all, dirty (from the first cell that changed or has not succeeded), ids, indexes such as 3-7 (7 is included), from:ID, or several with commas between them")
	f.StringArrayVarP(&o.values, "parameter", "p", nil, "set a parameter: `NAME=VALUE`, where VALUE is JSON or else a text; may be repeated")
	f.StringVar(&s.Parameters, "parameters", "", "set parameters: a `JSON` object")
	f.StringVar((*string)(&s.OnError), "on-error", string(s.OnError), "`ACTION` after a cell has failed: stop, continue, or skip_dependants (skip the cells that use its names)")
	f.IntVar(&s.Retries, "retries", 0, "run a cell up to this `NUMBER` of times again after errors that usually pass by themselves; what it did before stays")
	f.DurationVar(&s.CellTimeout, "cell-timeout", s.CellTimeout, "interrupt a cell after this `TIME`, such as 90s or 2h, at most 24h")
	f.BoolVar(&s.Restart, "restart", false, "restart the kernel first, which deletes all variables")
	f.StringVar((*string)(&s.OnNewKernel), "on-new-kernel", string(s.OnNewKernel), "`ACTION` if the executor or the VM is replaced during the run: stop, or rerun from the first cell")
	f.StringVar(&s.StateName, "state-name", "", "save the variables under this `NAME` after each cell with the tag save-state, and restore them in a new kernel; the run waits there until this command is called")
	f.BoolVarP(&s.DryRun, "dry-run", "n", false, "print which cells would run, and run nothing")
	f.BoolVar(&o.outputs, "outputs", false, "print what the cells print")
	cli.AddRuntimeFlag(cmd, &o.Runtime)
	cli.AddJSONFlag(cmd, &o.JSON)
	o.Set.AddFlags(f, "LOCAL_SAVE_DIR", "CHECKPOINT_DIR")
	for flag, values := range map[string][]string{
		"on-error":      {string(nbrun.StopOnError), string(nbrun.ContinueAfter), string(nbrun.SkipDependants)},
		"on-new-kernel": {string(nbrun.StopOnNewKernel), string(nbrun.Rerun)},
		"cells":         {"all", "dirty", "from:"},
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flag exists
		}
	}
}

func (o *runOptions) run(ctx context.Context, given bool) error {
	if len(o.values) > 0 && given {
		return cli.Usagef("give either --parameters or -p, not both")
	}
	if len(o.values) > 0 {
		var err error
		if o.spec.Parameters, err = parametersOf(o.values); err != nil {
			return err
		}
	}
	run, cfg, err := cli.OpenNotebookRun(o.Set, o.spec)
	if err != nil {
		return err
	}
	defer run.Close()
	return o.Session(ctx, nil, func(ctx context.Context, s cli.RunSession) error {
		return o.follow(ctx, s, run, nbrun.Options{SaveDir: cfg.SaveDir, States: s.Client})
	})
}

// follow runs the notebook to its end and prints how it went.
func (o *runOptions) follow(ctx context.Context, s cli.RunSession, run *nbrun.Run, opts nbrun.Options) error {
	cells := remoterun.NewCells(s.VM, s.Console)
	defer cells.Close()
	view := cli.NewNotebookView(o.Std, cells)
	view.Outputs, view.Quiet = o.outputs, o.JSON && !terminal.Is(o.Std.Err)
	loop := cli.NotebookLoop{Run: run, VM: s.VM, View: view, Options: opts}
	outcome, err := loop.ToEnd(ctx)
	if err != nil {
		return cli.NotebookUsage(err)
	}
	cells.Close()
	record := run.Record()
	switch {
	case o.JSON && o.spec.DryRun:
		return cli.PrintJSON(o.Std.Out, outcome.Plan)
	case o.spec.DryRun:
		return printPlan(o.Std, outcome)
	case o.JSON:
		err = cli.PrintJSON(o.Std.Out, newReport(record))
	default:
		printRun(o.Std, &record.Run)
		switch {
		case outcome.Status == nbrun.StatusNewKernel:
			view.Note("the run is not finished; add --on-new-kernel rerun to start it again at its first cell")
		case outcome.CanContinue:
			view.Note("the run is not finished; the same command continues it")
		}
	}
	if err == nil {
		_ = run.Delivered() // without it, the same command prints this report again
	}
	if err == nil && !record.Run.Succeeded() {
		err = remoterun.ErrPrinted
	}
	return err
}

// parametersOf makes the JSON object of parameters that are given as NAME=VALUE.
func parametersOf(values []string) (string, error) {
	var members []string
	for _, each := range values {
		name, value, ok := strings.Cut(each, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return "", cli.Usagef("-p %q: write it as NAME=VALUE", each)
		}
		members = append(members, quoted(name)+": "+jsonValue(value))
	}
	return "{" + strings.Join(members, ", ") + "}", nil
}

// quoted returns a text as JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a string is always JSON
	return string(b)
}

// jsonValue returns a value as JSON: Python's constants and what is JSON already mean what they
// say, anything else is a text.
func jsonValue(value string) string {
	constants := map[string]string{"True": "true", "False": "false", "None": "null", "NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}
	if constant, ok := constants[value]; ok {
		return constant
	}
	if json.Valid([]byte(value)) {
		return value
	}
	return quoted(value)
}
