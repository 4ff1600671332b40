// Package runs has the commands about runs that do more for a person than the tools: run, attach,
// logs and export. It must not find a run on the VM or follow it itself: relay/runlist and
// relay/remoterun do.
//
// Start reading at RunCommand, and at OpenPastRuns of relay/cli for runs that this computer keeps.
package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/cli"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/op"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/lazy"
)

// runOptions are the flags of `colab-relay run`.
type runOptions struct {
	cli.RunsCommand
	code    string
	given   bool // code is given
	detach  bool
	timeout time.Duration
	with    []string // files and folders to upload before
	flags   *pflag.FlagSet
}

// RunCommand returns `colab-relay run`.
func RunCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := &runOptions{RunsCommand: cli.RunsCommand{Set: set, Std: std}, timeout: contract.MaxTimeout}
	cmd := &cobra.Command{
		Use:   "run [flags] [FILE [ARGUMENT]... | -c CODE | -]",
		Short: "Run Python on the VM and print its output; Ctrl-C interrupts it",
		Long: "Run a program, a notebook's code cells, CODE or the code on stdin in the VM's kernel, and print the output as it arrives.\n\n" +
			"FILE runs as `python FILE ARGUMENT...` would: sys.argv, __file__, __name__ and tracebacks are as usual. The file itself is not copied to the VM, so code there cannot open it, and multiprocessing's spawn method, whose processes import it, does not work. Its variables stay in the kernel for later runs. Everything after FILE belongs to the program; flags of run come before it. Magics such as %pip work only in notebooks and with -c.\n" +
			"Only FILE itself is sent. --with PATH first uploads a file or folder that it needs, such as a module, into the executor's working directory. What lies beside or below FILE keeps its place relative to it. An earlier version on the VM is replaced.\n" +
			"Before FILE runs, modules of the kernel's working directory whose files changed there are imported anew, together with the modules that use them; a note says so of each that is imported. The other modules keep their state. With --with, this holds for CODE, code on stdin and notebooks too; without it, they and agents' tools keep Jupyter's rule: a module stays as it was imported until importlib.reload or `colab-relay restart`.\n" +
			"If FILE imports a module beside or below it that was put on the VM and changed here since, a note says that the VM has the earlier one.\n" +
			"FILE.ipynb runs its code cells one after another and stops at the first that fails. The file stays as it is; `colab-relay nb run` writes the outputs into it.\n" +
			"CODE, and code on stdin, runs like a notebook's cell: magics and !commands work, and the value of the last expression is printed.\n\n" +
			"Ctrl-C interrupts the code on the VM; variables stay. A second Ctrl-C leaves the code running; `colab-relay attach` comes back to it.\n" +
			"The exit code is 0 if the code succeeded, the number that it passed to exit() or sys.exit(), or else 1; `colab-relay help exit-codes` lists the others.",
		Example: "  colab-relay run train.py --epochs 3\n" +
			"  colab-relay run --with helpers.py train.py\n" +
			"  colab-relay run --detach train.py      # print the run's id and return\n" +
			"  colab-relay run -c 'model.summary()'\n" +
			"  colab-relay run analysis.ipynb\n" +
			"  echo '!nvidia-smi' | colab-relay run -",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given, o.flags = cmd.Flags().Changed("code"), cmd.Flags()
			return o.run(cmd.Context(), args)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *runOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().SetInterspersed(false)
	cli.AddRuntimeFlag(cmd, &o.Runtime)
	cmd.Flags().BoolVar(&o.JSON, "json", false, "with --detach: print one JSON document")
	cmd.Flags().StringVarP(&o.code, "code", "c", "", "run `CODE`")
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "start the code, print the run's id and return at once")
	o.Set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "interrupt the code after this `TIME`, such as 90m; 0 means no limit but the longest, 24h")
	cmd.Flags().StringArrayVar(&o.with, "with", nil, "first upload the file or folder `PATH`; may be given several times")
}

func (o *runOptions) run(ctx context.Context, args []string) error {
	if o.timeout < 0 || o.timeout > contract.MaxTimeout {
		return cli.Usagef("--timeout %s: must be from 0 to 24h", o.timeout)
	}
	o.timeout = cmp.Or(o.timeout, contract.MaxTimeout)
	if o.JSON && !o.detach {
		return cli.Usagef("--json needs --detach; `colab-relay logs --json` prints a run's output as JSON")
	}
	source, err := o.source(ctx, args)
	if err != nil {
		return err
	}
	file := cmp.Or(source.notebook, source.code.Program)
	along, err := o.companions(ctx, file)
	if err != nil {
		return err
	}
	along.program = source.code.Program != ""
	if flag := ownFlag(source.code.Arguments); flag != "" && o.flags.ArgsLenAtDash() < 0 {
		fmt.Fprintf(o.Std.Err, "note: %s stands after FILE, so the program gets it; flags of run come before FILE\n", flag)
	}
	if source.notebook != "" {
		err = o.runNotebook(ctx, source.notebook, along)
	} else {
		err = o.begin(ctx, along, func(ctx context.Context, s cli.RunSession) error {
			if o.detach {
				return o.start(ctx, s, source.code)
			}
			return remoterun.Run(ctx, s.VM, source.code, s.Console)
		})
	}
	o.helpWithModule(err, file, along)
	return err
}

// ownFlag returns the first of a program's arguments that looks like a flag of run, or "". Programs
// often have a --help, --json or --timeout of their own.
func ownFlag(arguments []string) string {
	for _, argument := range arguments {
		name, _, _ := strings.Cut(argument, "=")
		if slices.Contains([]string{"--runtime", "--with", "--detach"}, name) {
			return name
		}
	}
	return ""
}

// begin is session of a command that runs code, after the uploads that it needs. If they fail, or
// the VM does not answer at the beginning, the error says that the code was not run.
func (o *runOptions) begin(ctx context.Context, along companions, f func(context.Context, cli.RunSession) error) error {
	begun := false
	err := o.Session(ctx, nil, func(ctx context.Context, s cli.RunSession) error {
		begun = true
		if err := o.upload(ctx, s.Client, along); err != nil {
			return remoterun.NotRun(err)
		}
		if along.file != "" {
			o.noteEarlier(s.Client, along)
		}
		if len(along.all) > 0 && !along.program {
			wait := contract.MaxWait
			if o.detach {
				wait = 0
			}
			if err := remoterun.ImportAnew(ctx, s.VM, wait); err != nil {
				return err
			}
		}
		return f(ctx, s)
	})
	if _, unanswered := errors.AsType[*client.Error](err); unanswered && !begun {
		return remoterun.NotRun(err)
	}
	return err
}

// runNotebook runs the code cells of a notebook and prints their outputs. It does not change the
// file.
func (o *runOptions) runNotebook(ctx context.Context, path string, along companions) error {
	path, err := filename.Existing(path)
	if err != nil {
		return err
	}
	run, err := nbrun.Open(config.Load(*o.Set).CheckpointDir, nbrun.Spec{Path: path, Unsaved: true, OnError: nbrun.StopOnError, CellTimeout: o.timeout})
	if err != nil {
		return cli.NotebookUsage(err)
	}
	defer run.Close()
	return o.begin(ctx, along, func(ctx context.Context, s cli.RunSession) error {
		cells := remoterun.NewCells(s.VM, s.Console)
		defer cells.Close()
		view := cli.NewNotebookView(o.Std, cells)
		view.Outputs, view.Quiet = true, true
		loop := cli.NotebookLoop{Run: run, VM: s.VM, View: view}
		if _, err := loop.ToEnd(ctx); err != nil {
			return err
		}
		_ = run.Delivered() // without it, the same command runs nothing
		return notebookError(&run.Record().Run, cells)
	})
}

// notebookError returns the error of the first cell that did not succeed, whose traceback was
// printed, and says which cell it is.
func notebookError(run *nbrun.RunRecord, cells *remoterun.Cells) error {
	switch {
	case len(run.Plan) == 0:
		return errors.New("nothing to run: the notebook has no code cells")
	case run.Succeeded():
		return nil
	}
	for i, cell := range run.Plan {
		if cell.Status == nbrun.CellSucceeded || cell.Status == nbrun.CellExpectedFailure || cell.Status == nbrun.CellNotRun {
			continue
		}
		note := fmt.Sprintf("code cell %d of %d did not succeed", i+1, len(run.Plan))
		if rest := len(run.Plan) - i - 1; rest > 0 {
			note += fmt.Sprintf("; %s after it did not run", plain.Count(rest, "cell"))
		}
		failed := cell.Failure()
		if failed != nil && failed.EName != "" && cell.Status == nbrun.CellFailed {
			cells.Note("%s", note)
			return remoterun.CellError(failed.EName, failed.EValue)
		}
		return fmt.Errorf("%s: %s", note, cell.Problem())
	}
	return fmt.Errorf("the run is not finished: %s", run.Summary())
}

// start starts the code and prints its id.
func (o *runOptions) start(ctx context.Context, s cli.RunSession, code remoterun.Code) error {
	e, err := remoterun.Start(ctx, s.VM, code)
	if err != nil {
		return err
	}
	if o.JSON {
		return cli.PrintJSON(o.Std.Out, struct {
			*op.Standing
			Runtime string `json:"runtime"`
		}{op.StandingOf(e), s.Runtime})
	}
	id := plain.Line(e.ExecutionID)
	if _, err := fmt.Fprintln(o.Std.Out, id); err != nil {
		return err
	}
	fmt.Fprintf(o.Std.Err, "colab-relay: the run is %s on %s; to see its output: colab-relay logs -f %s\n", plain.Line(string(e.Status)), s.Runtime, id)
	return nil
}

// maxCode leaves room for JSON's escapes within contract.MaxBodyBytes.
const maxCode = 4 << 20

// source is what `colab-relay run` runs: code, or the notebook at a path.
type source struct {
	code     remoterun.Code
	notebook string
}

// source reads what args and -c name.
func (o *runOptions) source(ctx context.Context, args []string) (source, error) {
	switch {
	case o.given && len(args) > 0:
		return source{}, cli.Usagef("give either a file or -c CODE, not both")
	case o.given:
		return o.cell(ctx, strings.NewReader(o.code), false)
	case len(args) == 0 && terminal.Is(o.Std.In):
		return source{}, cli.Usagef("nothing to run: give a file, -c CODE, or code on stdin")
	case len(args) == 0 || args[0] == "-":
		if len(args) > 1 {
			return source{}, cli.Usagef("unexpected argument %q: code on stdin takes no arguments", args[1])
		}
		return o.cell(ctx, o.Std.In, true)
	}
	if strings.EqualFold(filepath.Ext(args[0]), ".ipynb") {
		return o.notebook(args)
	}
	program, err := filename.Existing(args[0])
	if err != nil {
		return source{}, cli.AsUsage(err)
	}
	f, err := os.Open(program)
	if err != nil {
		return source{}, fmt.Errorf("%w: name a file on this computer, or give code with -c", err)
	}
	defer f.Close()
	text, err := cli.ReadCode(f, "the code", maxCode)
	if err != nil {
		return source{}, err
	}
	return source{code: remoterun.Code{Text: text, Program: program, Arguments: args[1:], Timeout: o.timeout}}, nil
}

// cell reads code that runs like a notebook's cell.
func (o *runOptions) cell(ctx context.Context, in io.Reader, fromStdin bool) (source, error) {
	text, err := terminal.UntilInterrupted(ctx, func() (string, error) { return cli.ReadCode(in, "the code", maxCode) })
	return source{code: remoterun.Code{Text: text, FromStdin: fromStdin, Timeout: o.timeout}}, err
}

func (o *runOptions) notebook(args []string) (source, error) {
	switch {
	case len(args) > 1:
		return source{}, cli.Usagef("unexpected argument %q: a notebook takes no arguments", args[1])
	case o.detach:
		return source{}, cli.Usagef("--detach: this computer starts a notebook's cells one after another; run it without --detach")
	}
	return source{notebook: args[0]}, nil
}

// put returns the command that uploads what args name to the VM of the run.
func (o *runOptions) put(args ...string) string {
	return strings.Join(append(o.command("put"), plain.ShellWords(args)...), " ")
}

// command returns the words of another command for the VM of the run.
func (o *runOptions) command(name string) []string {
	words := []string{cli.CommandName, name}
	if o.Runtime != "" {
		words = append(words, "--runtime", plain.ShellWord(o.Runtime))
	}
	return words
}

// withWords are the flags with which a run brings files along.
func withWords(paths ...string) string {
	var words []string
	for _, path := range paths {
		words = append(words, "--with", plain.ShellWord(path))
	}
	return strings.Join(words, " ")
}

// companion is a file or folder that a run brings along.
type companion struct {
	local  string
	remote string // relative to the executor's working directory
}

// companions are what --with names, and how they are uploaded.
type companions struct {
	file    string // the program or notebook; empty for other code
	program bool   // file is a program
	all     []companion
	options transfer.Options
}

// companions checks what --with names. file is the program or notebook; without one, the places
// of the companions are relative to the current folder.
func (o *runOptions) companions(ctx context.Context, file string) (companions, error) {
	c := companions{file: file}
	cfg := config.Load(*o.Set)
	if err := cfg.Err(); err != nil {
		return c, err
	}
	c.options = transfer.Options{Guard: cfg.Guard, RecordDir: cfg.TransferDir}
	from := map[string]string{}
	for _, local := range o.with {
		if local == "" {
			return c, cli.Usagef("--with is empty: name a file or folder on this computer")
		}
		local, err := filename.Existing(local)
		if err != nil {
			return c, cli.AsUsage(fmt.Errorf("--with: %w", err))
		}
		remote, err := placeBeside(file, local)
		if err != nil {
			return c, fmt.Errorf("--with %q: %w", local, err)
		}
		if other, twice := from[remote]; twice && other != local {
			return c, cli.Usagef("--with %q and --with %q: both would be %q on the VM", other, local, remote)
		}
		from[remote] = local
		switch err := transfer.CheckUpload(ctx, local, cfg.Guard); {
		case errors.Is(err, transfer.ErrGuarded):
			return c, fmt.Errorf("--with: %v; to upload it anyway, run `%s`", err, o.put("--force", local))
		case err != nil:
			return c, fmt.Errorf("--with: %w", err)
		}
		c.all = append(c.all, companion{local, remote})
	}
	return c, nil
}

// placeBeside returns where on the VM a companion of file lies: what is beside or below file keeps
// its place relative to it, anything else gets its own name.
func placeBeside(file, local string) (string, error) {
	base, err := filepath.Abs(filepath.Dir(file)) // of "" it is the current folder
	if err != nil {
		return "", err
	}
	full, err := filepath.Abs(local)
	if err != nil {
		return "", err
	}
	place, err := filepath.Rel(base, full)
	if err != nil || !filepath.IsLocal(place) {
		place = filepath.Base(full)
	}
	parts := strings.Split(filepath.ToSlash(place), "/")
	for i, part := range parts {
		parts[i] = contract.EscapeName(part)
	}
	return strings.Join(parts, "/"), nil
}

// upload uploads the companions and shows the progress.
func (o *runOptions) upload(ctx context.Context, vm *client.Client, c companions) error {
	for _, each := range c.all {
		r, err := cli.ShowTransfer(ctx, o.Std, each.local, func(report func(transfer.Progress)) (transfer.Result, error) {
			options := c.options
			options.Report = report
			return transfer.Upload(ctx, vm, each.local, each.remote, options)
		})
		for _, note := range r.Notes {
			fmt.Fprintf(o.Std.Err, "note: %s\n", plain.Line(note))
		}
		switch {
		case errors.Is(err, transfer.ErrExists) && each.remote == ".":
			return fmt.Errorf("%v; to replace a file there, name it with --with: the error then says how", err)
		case errors.Is(err, transfer.ErrExists):
			return fmt.Errorf("%v; to replace it, run `%s`, then run the code again", err, o.put("--overwrite", "--to", path.Dir(each.remote), each.local))
		case err != nil:
			return err
		}
	}
	return nil
}

// has reports whether a local path is, or lies in, one of the companions.
func (c companions) has(path string) bool {
	full, err := filepath.Abs(path)
	for _, each := range c.all {
		folder, failed := filepath.Abs(each.local)
		if place, outside := filepath.Rel(folder, full); err == nil && failed == nil && outside == nil && filepath.IsLocal(place) {
			return true
		}
	}
	return false
}

// moduleName is a name that an import statement can have.
var moduleName = lazy.Regexp(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

// helpWithModule says how a module gets to the VM if the code did not find it there, and this
// computer's Python would find it for file: beside it, in the current folder or in PYTHONPATH.
func (o *runOptions) helpWithModule(err error, file string, along companions) {
	missing, ok := errors.AsType[*remoterun.NoModuleError](err)
	if !ok || !moduleName().MatchString(missing.Module) {
		return
	}
	folders := append([]string{filepath.Dir(file), "."}, filepath.SplitList(o.Set.Getenv("PYTHONPATH"))...)
	for _, folder := range folders {
		path, found := localModule(folder, missing.Module)
		if !found {
			continue
		}
		if along.has(path) {
			fmt.Fprintf(o.Std.Err, "%s: %s was uploaded into the executor's working directory, but the kernel works in another one\n  next step: let the code add that folder to sys.path, or run `%s`\n", cli.CommandName, plain.Line(path), plain.Line(strings.Join(o.command("restart"), " ")))
			return
		}
		fmt.Fprintf(o.Std.Err, "%s: %s is on this computer, but not on the VM\n  next step: run `%s`, or add `%s` to this command\n", cli.CommandName, plain.Line(path), plain.Line(o.put(path)), plain.Line(withWords(path)))
		return
	}
}

// localModule returns the file or folder below folder that has the module: of a module in a
// package the whole package, because Python needs the rest of it too.
func localModule(folder, module string) (path string, found bool) {
	parts := strings.Split(module, ".")
	inside := filepath.Join(append([]string{folder}, parts...)...)
	info, err := os.Stat(inside + ".py")
	isFile := err == nil && info.Mode().IsRegular()
	own, _ := filepath.Glob(filepath.Join(inside, "*.py"))
	deeper, _ := filepath.Glob(filepath.Join(inside, "*", "*.py"))
	switch {
	case !isFile && len(own)+len(deeper) == 0:
		return "", false
	case isFile && len(parts) == 1:
		return inside + ".py", true
	}
	return filepath.Join(folder, parts[0]), true
}
