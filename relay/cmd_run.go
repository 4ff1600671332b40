package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// runOptions are the flags of `colab-relay run`.
type runOptions struct {
	runsCommand
	code    string
	given   bool // code is given
	detach  bool
	timeout time.Duration
}

func runCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := runOptions{runsCommand: runsCommand{set: set, std: std}, timeout: contract.MaxTimeout}
	cmd := &cobra.Command{
		Use:   "run [flags] [FILE [ARGUMENT]... | -c CODE | -]",
		Short: "Run Python on the VM and print its output; Ctrl-C interrupts it",
		Long: "Run a program, a notebook's code cells, CODE or the code on stdin in the VM's kernel, and print the output as it arrives.\n\n" +
			"FILE runs as `python FILE ARGUMENT...` would: sys.argv, __file__, __name__ and tracebacks are as usual. Its variables stay in the kernel for later runs. Everything after FILE belongs to the program; flags of run come before it. Only FILE itself is sent: upload the modules beside it with `colab-relay put`. Magics such as %pip work only in notebooks and with -c.\n" +
			"FILE.ipynb runs its code cells one after another and stops at the first that fails. The file stays as it is; `colab-relay nb run` writes the outputs into it.\n" +
			"CODE, and code on stdin, runs like a notebook's cell: magics and !commands work, and the value of the last expression is printed.\n\n" +
			"Ctrl-C interrupts the code on the VM; variables stay. A second Ctrl-C leaves the code running; `colab-relay attach` comes back to it.\n" +
			"The exit code is 0 if the code succeeded, the value that it passed to sys.exit, and otherwise 1; `colab-relay help exit-codes` lists the others.",
		Example: "  colab-relay run train.py --epochs 3\n" +
			"  colab-relay run --detach train.py      # print the run's id and return\n" +
			"  colab-relay run -c 'model.summary()'\n" +
			"  colab-relay run analysis.ipynb\n" +
			"  echo '!nvidia-smi' | colab-relay run -",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = cmd.Flags().Changed("code")
			return o.run(cmd.Context(), args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	addRuntimeFlag(cmd, &o.runtime)
	cmd.Flags().BoolVar(&o.json, "json", false, "with --detach: print one JSON document")
	cmd.Flags().StringVarP(&o.code, "code", "c", "", "run `CODE`")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "start the code, print the run's id and return at once")
	set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "interrupt the code after this `TIME`, such as 90m, at most 24h; 0 means 10m")
	return cmd
}

func (o *runOptions) run(ctx context.Context, args []string) error {
	if o.timeout < 0 || o.timeout > contract.MaxTimeout {
		return usagef("--timeout %s: must be from 0 to 24h", o.timeout)
	}
	if o.json && !o.detach {
		return usagef("--json needs --detach; `colab-relay logs --json` prints a run's output as JSON")
	}
	source, err := o.source(ctx, args)
	if err != nil {
		return err
	}
	if source.notebook != "" {
		return o.runNotebook(ctx, source.notebook)
	}
	return o.begin(ctx, func(ctx context.Context, s runSession) error {
		if o.detach {
			return o.start(ctx, s, source.code)
		}
		return remoterun.Run(ctx, s.VM, source.code, s.console)
	})
}

// begin is session of a command that runs code. If the VM does not answer at the beginning, the
// error says that the code was not run.
func (o *runOptions) begin(ctx context.Context, f func(context.Context, runSession) error) error {
	begun := false
	err := o.session(ctx, nil, func(ctx context.Context, s runSession) error {
		begun = true
		return f(ctx, s)
	})
	if _, unanswered := errors.AsType[*client.Error](err); unanswered && !begun {
		return remoterun.NotRun(err)
	}
	return err
}

// runNotebook runs the code cells of a notebook and prints their outputs. It does not change the
// file.
func (o *runOptions) runNotebook(ctx context.Context, path string) error {
	run, _, err := openNotebookRun(o.set, nbrun.Spec{Path: path, Save: nbrun.SaveNone, OnError: nbrun.StopOnError, CellTimeout: o.timeout})
	if err != nil {
		return err
	}
	defer run.Close()
	return o.begin(ctx, func(ctx context.Context, s runSession) error {
		cells := remoterun.NewCells(s.VM, s.console)
		defer cells.Close()
		view := newNotebookView(o.std, cells)
		view.outputs, view.quiet = true, true
		loop := notebookLoop{run: run, vm: s.VM, view: view}
		if _, err := loop.toEnd(ctx); err != nil {
			return err
		}
		return notebookError(run.Record().Report(), cells)
	})
}

// notebookError returns the error of the first cell that did not succeed, whose traceback was
// printed, and says which cell it is.
func notebookError(report nbrun.Report, cells *remoterun.Cells) error {
	switch {
	case len(report.Cells) == 0:
		return errors.New("nothing to run: the notebook has no code cells")
	case report.Success:
		return nil
	}
	for i, cell := range report.Cells {
		if cell.Status == nbrun.CellSucceeded || cell.Status == nbrun.CellExpectedFailure || cell.Status == nbrun.CellNotRun {
			continue
		}
		note := fmt.Sprintf("code cell %d of %d did not succeed", i+1, len(report.Cells))
		if rest := len(report.Cells) - i - 1; rest > 0 {
			note += fmt.Sprintf("; %s after it did not run", plain.Count(rest, "cell"))
		}
		failed := cell.Failure()
		if failed != nil && failed.EName != "" && cell.Status == nbrun.CellFailed {
			cells.Note("%s", note)
			return remoterun.CellError(failed.EName, failed.EValue)
		}
		return fmt.Errorf("%s: %s", note, cell.Problem())
	}
	return fmt.Errorf("the run is not finished: %s", report.Summary())
}

// start starts the code and prints its id.
func (o *runOptions) start(ctx context.Context, s runSession, code remoterun.Code) error {
	e, err := remoterun.Start(ctx, s.VM, code)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(o.std.Out, s.state(e))
	}
	id := plain.Line(e.ExecutionID)
	if _, err := fmt.Fprintln(o.std.Out, id); err != nil {
		return err
	}
	fmt.Fprintf(o.std.Err, "colab-relay: the run is %s on %s; to see its output: colab-relay logs -f %s\n", plain.Line(string(e.Status)), s.Runtime, id)
	return nil
}
