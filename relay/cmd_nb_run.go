package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/output"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
)

// nbRunOptions are the flags of `colab-relay nb run`.
type nbRunOptions struct {
	runsCommand
	spec    nbrun.Spec
	values  []string // of --parameter
	outputs bool
}

func nbRunCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := nbRunOptions{runsCommand: runsCommand{set: set, std: std}, spec: nbrun.Defaults("")}
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a notebook on the VM and write its outputs into it",
		Long: "Run the code cells of a notebook on the VM one after another, and write their outputs into the notebook as they come. The next cells wait on the VM, so they run even if this computer sleeps.\n" +
			"Errors that usually pass by themselves, such as of the network, are retried. After a failure, the cells that use what the failed cell would have made are skipped, and the others run.\n\n" +
			"If the command ends before the run, the same command continues it: cells that have succeeded do not run again, unless the kernel is a new one. Ctrl-C interrupts the run; a second Ctrl-C leaves it running.\n" +
			"These tags of a cell have a meaning: skip-execution, raises-exception, force-execute (run it whatever failed before), no-retry, frozen (do not run it again in the same kernel), save-state (see --state-name), and timeout=SECONDS.\n" +
			"Parameters follow papermill's rules: they are assigned in a new cell below the one with the tag parameters. On lines with #@param they replace the value instead, but not in the file.\n\n" +
			"The exit code is 0 if no cell failed or was skipped, and otherwise 1; `colab-relay help exit-codes` lists the others.",
		Example: "  colab-relay nb run analysis.ipynb\n" +
			"  colab-relay nb run analysis.ipynb --output-path run1.ipynb -p epochs=10 -p name=test\n" +
			"  colab-relay nb run analysis.ipynb --cells dirty --dry-run     # which cells would run, and why\n" +
			"  colab-relay nb run analysis.ipynb --cells from:3f2a1b0c --on-error stop",
		Args:              arguments(1, 1),
		ValidArgsFunction: completeNotebooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.spec.Path = args[0]
			return o.run(cmd.Context(), cmd.Flags().Changed("parameters"))
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *nbRunOptions) addFlags(cmd *cobra.Command) {
	f, s := cmd.Flags(), &o.spec
	f.StringVar(&s.OutputPath, "output-path", "", "write the outputs into this new `FILE`, a copy, and leave the notebook as it is")
	f.StringVar(&s.Cells, "cells", s.Cells, "which `CELLS`: all, dirty, stale, ids, indexes such as 3-7 (7 is included), from:ID, or several with commas between them")
	f.StringArrayVarP(&o.values, "parameter", "p", nil, "set a parameter: `NAME=VALUE`, where VALUE is JSON or else a text; may be repeated")
	f.StringVar(&s.Parameters, "parameters", "", "set parameters: a `JSON` object")
	f.StringVar((*string)(&s.OnError), "on-error", string(s.OnError), "after a failed cell, `DO` this: skip_dependents, stop or continue")
	f.StringVar(&s.Force, "force", "", "run the cells with these `IDS` whatever failed before")
	f.IntVar(&s.MaxRetries, "max-retries", s.MaxRetries, "retry a cell up to this `NUMBER` of times")
	f.IntVar(&s.RetryBudget, "retry-budget", s.RetryBudget, "retry at most this `NUMBER` of times in the whole run")
	f.StringVar(&s.RetryOn, "retry-on", "", "also retry after these `ERRORS`: names of exceptions or parts of messages, with commas between them; none first means only these")
	f.DurationVar(&s.CellTimeout, "cell-timeout", s.CellTimeout, "interrupt a cell after this `TIME`, such as 90s or 2h, at most 24h")
	f.DurationVar(&s.RunTimeout, "run-timeout", 0, "end the run after this `TIME`; 0 means never")
	f.BoolVar(&s.Restart, "restart", false, "restart the kernel first, which deletes all variables")
	f.StringVar((*string)(&s.OnNewKernel), "on-new-kernel", string(s.OnNewKernel), "if the kernel is replaced during the run, `DO` this: rerun or stop")
	f.StringVar((*string)(&s.OnChange), "on-change", string(s.OnChange), "if the notebook is edited during the run, `DO` this: continue (with the new sources), refuse or restart")
	f.StringVar(&s.StateName, "state-name", "", "save the variables under this `NAME` after each cell with the tag save-state, and restore them in a new kernel")
	f.BoolVarP(&s.DryRun, "dry-run", "n", false, "print which cells would run, and run nothing")
	f.BoolVar(&o.outputs, "outputs", false, "print what the cells print")
	addRuntimeFlag(cmd, &o.runtime)
	addJSONFlag(cmd, &o.json)
	o.set.AddFlags(f, "LOCAL_SAVE_DIR", "CHECKPOINT_DIR")
	for flag, values := range map[string][]string{
		"on-error":      {string(nbrun.SkipDependents), string(nbrun.StopOnError), string(nbrun.ContinueAfter)},
		"on-new-kernel": {string(nbrun.Rerun), string(nbrun.StopOnNewKernel)},
		"on-change":     {string(nbrun.ContinueChanged), string(nbrun.RefuseChanged), string(nbrun.RestartChanged)},
		"cells":         {"all", "dirty", "stale", "from:"},
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flag exists
		}
	}
}

func (o *nbRunOptions) run(ctx context.Context, given bool) error {
	switch {
	case len(o.values) > 0 && given:
		return usagef("give either --parameters or -p, not both")
	case o.spec.OutputPath != "":
		o.spec.Save = nbrun.SaveCopy
	}
	if len(o.values) > 0 {
		var err error
		if o.spec.Parameters, err = parametersOf(o.values); err != nil {
			return err
		}
	}
	run, cfg, err := openNotebookRun(o.set, o.spec)
	if err != nil {
		return err
	}
	defer run.Close()
	return o.session(ctx, nil, func(ctx context.Context, s runSession) error {
		return o.follow(ctx, s, run, nbrun.Options{
			SaveText: saveTexts(cfg, run), States: nbrun.KernelStates(s.Client, cfg.CheckpointDir, s.Runtime),
		})
	})
}

// openNotebookRun opens the run of a notebook. A wrong argument is an error of the command line.
func openNotebookRun(set *config.Settings, spec nbrun.Spec) (*nbrun.Run, config.Config, error) {
	c := nbFile{set: set}
	if _, _, err := c.open(spec.Path); err != nil { // which names the file
		return nil, c.cfg, err
	}
	run, err := nbrun.Open(c.cfg.CheckpointDir, spec)
	return run, c.cfg, asUsage(err)
}

// asUsage makes an error about the arguments of a run one of the command line, and names the
// flag instead of the tool's argument.
func asUsage(err error) error {
	if wrong, ok := errors.AsType[*nbrun.ArgumentError](err); ok {
		flag := strings.ReplaceAll(strings.TrimSuffix(wrong.Name, "_seconds"), "_", "-")
		return usagef("--%s: %s", flag, wrong.Problem)
	}
	if errors.Is(err, nbrun.ErrSpec) {
		return usageError{err}
	}
	return err
}

// saveTexts stores texts that are too long for the notebook of a run, below LOCAL_SAVE_DIR.
func saveTexts(cfg config.Config, run *nbrun.Run) output.SaveText {
	const folder = "notebooks"
	return output.SaveIn(filepath.Join(cfg.SaveDir, folder), "LOCAL_SAVE_DIR/"+folder, nbrun.Name(run.Record().Path))
}

// follow runs the notebook to its end and prints how it went.
func (o *nbRunOptions) follow(ctx context.Context, s runSession, run *nbrun.Run, opts nbrun.Options) error {
	cells := remoterun.NewCells(s.VM, s.console)
	defer cells.Close()
	view := newNotebookView(o.std, cells)
	view.outputs, view.quiet = o.outputs, o.json && !terminal.Is(o.std.Err)
	loop := notebookLoop{run: run, vm: s.VM, view: view, opts: opts}
	outcome, err := loop.toEnd(ctx)
	if err != nil {
		return asUsage(err)
	}
	cells.Close()
	report := run.Record().Report()
	switch {
	case o.json && o.spec.DryRun:
		return printJSON(o.std.Out, outcome.Plan)
	case o.spec.DryRun:
		return printPlan(o.std, outcome)
	case o.json:
		err = printJSON(o.std.Out, report)
	default:
		printReport(o.std, report)
		if outcome.CanContinue {
			view.note("the run is not finished; the same command continues it")
		}
	}
	if err == nil {
		_ = run.Delivered() // without it, the same command prints this report again
	}
	if err == nil && !report.Success {
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
			return "", usagef("-p %q: write it as NAME=VALUE", each)
		}
		key, err := json.Marshal(name)
		if err != nil {
			return "", err
		}
		members = append(members, string(key)+": "+jsonValue(value))
	}
	return "{" + strings.Join(members, ", ") + "}", nil
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
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // a string is always JSON
	}
	return string(text)
}
