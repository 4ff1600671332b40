package nb

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/op"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// runCommand returns `colab-relay nb run`, which follows a run to its end.
func runCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	r := &runner{RunsCommand: cli.RunsCommand{Set: set, Std: std}, op: op.OperationOf("run_notebook")}
	given, arguments := r.op.Arguments()
	r.args = given.(*op.RunNotebookArgs)
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
		Args: cli.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.args.Path, r.args.CellTimeout = args[0], r.timeout.Seconds()
			return r.run(cmd.Context(), cmd.Flags().Changed("parameters"))
		},
	}
	cmd.ValidArgsFunction = cli.CompleteArguments(set, cli.AddArguments(cmd, arguments), cobra.ShellCompDirectiveNoFileComp)
	f := cmd.Flags()
	f.StringArrayVarP(&r.values, "parameter", "p", nil, "set a parameter: `NAME=VALUE`, where VALUE is JSON or else a text; may be repeated")
	f.DurationVar(&r.timeout, "cell-timeout", contract.DefaultTimeout, "interrupt a cell after this `TIME`, such as 90s or 2h, at most 24h")
	f.BoolVar(&r.outputs, "outputs", false, "print what the cells print")
	cli.AddRuntimeFlag(cmd, &r.Runtime)
	cli.AddJSONFlag(cmd, &r.JSON)
	set.AddFlags(f, "LOCAL_SAVE_DIR", "CHECKPOINT_DIR")
	return cmd
}

// runner is a call of `colab-relay nb run`.
type runner struct {
	cli.RunsCommand
	op      op.Operation
	args    *op.RunNotebookArgs
	values  []string // of --parameter
	timeout time.Duration
	outputs bool
}

func (r *runner) run(ctx context.Context, given bool) (err error) {
	if len(r.values) > 0 && given {
		return cli.Usagef("give either --parameters or -p, not both")
	}
	if len(r.values) > 0 {
		if r.args.Parameters, err = parametersOf(r.values); err != nil {
			return err
		}
	}
	cfg := config.Load(*r.Set)
	if err := cfg.Err(); err != nil {
		return err
	}
	var run *nbrun.Run
	answer, err := r.op.Do(ctx, op.Person{
		Streams: r.Std, Config: op.Config{CheckpointDir: cfg.CheckpointDir},
		Notebook: func(ctx context.Context, opened *nbrun.Run) (o nbrun.Outcome, err error) {
			run = opened
			err = r.Session(ctx, nil, func(ctx context.Context, s cli.RunSession) error {
				o, err = r.follow(ctx, s, run, nbrun.Options{SaveDir: cfg.SaveDir, States: s.Client})
				return err
			})
			return o, err
		},
	}, r.args)
	if err = cli.PrintAnswer(r.Std, answer, cli.NotebookUsage(err), r.JSON); err != nil || r.args.DryRun {
		return err
	}
	_ = run.Delivered() // without it, the same command prints this report again
	if !run.Record().Run.Succeeded() {
		return remoterun.ErrPrinted
	}
	return nil
}

// follow runs the notebook to its end, and prints progress or what the cells print.
func (r *runner) follow(ctx context.Context, s cli.RunSession, run *nbrun.Run, o nbrun.Options) (nbrun.Outcome, error) {
	cells := remoterun.NewCells(s.VM, s.Console)
	defer cells.Close()
	view := cli.NewNotebookView(r.Std, cells)
	view.Outputs, view.Quiet = r.outputs, r.JSON && !terminal.Is(r.Std.Err)
	loop := cli.NotebookLoop{Run: run, VM: s.VM, View: view, Options: o}
	return loop.ToEnd(ctx)
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
