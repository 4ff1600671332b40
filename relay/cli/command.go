// Package cli is what the commands of colab-relay share: flags and arguments, help, completion,
// exit codes, what is printed, and the VM, history and notebook that a command works on. It makes
// the commands of relay/op' operations, and must not import the packages below it, which have
// the others.
//
// Start reading at Operations in operation.go and RunsCommand in session.go.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/hint"
	"colabrelay/relay/notebook"
	"colabrelay/relay/op"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
	"colabrelay/shared/filename"
)

// CommandName is the name of this program in all texts. The name relay is common: other
// packages install a command of that name.
const CommandName = "colab-relay"

// AddRuntimeFlag adds --runtime to a command that talks to a VM.
func AddRuntimeFlag(cmd *cobra.Command, name *string) {
	AddRuntimeFlagFor(cmd, name, "use the paired runtime `NAME` instead of the default one")
}

// AddRuntimeFlagFor adds a --runtime of another meaning.
func AddRuntimeFlagFor(cmd *cobra.Command, name *string, usage string) {
	cmd.Flags().StringVar(name, "runtime", "", usage)
	if err := cmd.RegisterFlagCompletionFunc("runtime", CompleteRuntimes); err != nil {
		panic(err) // the flag exists
	}
}

// FileFlag adds a flag that names a file on this computer. No shell replaces ~ in --flag=~/x.
func FileFlag(fs *pflag.FlagSet, file *string, name, usage string) {
	fs.Var((*fileFlag)(file), name, usage)
}

type fileFlag string

func (f *fileFlag) String() string { return string(*f) }
func (f *fileFlag) Type() string   { return "string" }
func (f *fileFlag) Set(text string) error {
	typed, err := filename.Existing(text)
	*f = fileFlag(typed)
	return err
}

// Arguments accepts from least to most arguments.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < least:
			return Usagef("%s is missing; usage: %s", strings.TrimSuffix(strings.Fields(cmd.Use)[n+1], "..."), cmd.UseLine())
		case n > most:
			return Usagef("unexpected argument %q; usage: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}

// NoSuchCommand refuses what follows the name of a program or command and is no command.
func NoSuchCommand(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if ext := filepath.Ext(args[0]); ext == ".ipynb" || ext == ".py" && !parent.HasParent() {
		return Usagef("unknown command %q: `%s run %s` runs a file", args[0], parent.CommandPath(), args[0])
	}
	var known []string
	for _, cmd := range parent.Commands() {
		if cmd.IsAvailableCommand() {
			known = append(known, cmd.Name())
		}
	}
	return Usagef("unknown command %q%s", args[0], meant(parent, args[0], known))
}

// FlagError describes a wrong flag.
func FlagError(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		problem := badValue(wrong.GetFlag().Value.Type(), wrong)
		if _, own := wrong.GetFlag().Value.(*op.Argument); own {
			problem = strings.Replace(errors.Unwrap(wrong).Error(), "must be ", "use ", 1)
		}
		return Usagef("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), problem)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	switch {
	case !ok:
		return AsUsage(err)
	case unknown.GetSpecifiedShortnames() != "":
		return Usagef("unknown flag -%s", unknown.GetSpecifiedName())
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return Usagef("unknown flag --%s%s", unknown.GetSpecifiedName(), suggest.Meant("--"+unknown.GetSpecifiedName(), known))
}

// badValue says what a flag of a type takes.
func badValue(kind string, err error) string {
	switch kind {
	case "int", "int64":
		return "use a whole number"
	case "duration":
		return "use a time such as 90s, 10m or 2h"
	case "bool":
		return "use true or false"
	}
	return errors.Unwrap(err).Error()
}

// OtherWords are words that people know from other programs, with the commands that do this
// here, by the command that they follow; "" is the program itself.
var OtherWords = map[string]map[string][]string{
	"": {
		"upload": {"put"}, "send": {"put"}, "push": {"put"},
		"download": {"get"}, "fetch": {"get"}, "pull": {"get"},
		"copy": {"put", "get"}, "cp": {"put", "get"}, "scp": {"put", "get"}, "rsync": {"put", "get"},
		"stop": {"interrupt"}, "cancel": {"interrupt"}, "abort": {"interrupt"}, "kill": {"interrupt", "restart"},
		"reset": {"restart"}, "reboot": {"restart"},
		"list": {"ps"}, "jobs": {"ps"}, "runs": {"ps"}, "history": {"ps"}, "top": {"ps"},
		"exec": {"run"}, "execute": {"run"}, "eval": {"run"}, "submit": {"run"}, "start": {"run"},
		"tail": {"logs"}, "output": {"logs"}, "follow": {"attach", "logs"}, "watch": {"attach", "logs"}, "resume": {"attach"},
		"answer": {"input"}, "dir": {"ls"}, "files": {"ls"}, "variables": {"vars"}, "notebook": {"nb"}, "jupyter": {"nb"},
		"connect": {"pair"}, "disconnect": {"unpair"}, "select": {"use"}, "switch": {"use"}, "setup": {"init"},
		"pip": {"packages"}, "query": {"sql"}, "dataframe": {"df"}, "chunked": {"loop"}, "backup": {"save"}, "load": {"restore"},
		"gpu": {"probe"}, "check": {"doctor"}, "ping": {"status"},
	},
	"nb": {
		"list": {"cells"}, "ls": {"cells"}, "show": {"cells"}, "cat": {"cells"},
		"exec": {"run"}, "execute": {"run"}, "insert": {"add"}, "move": {"mv"}, "delete": {"rm"}, "remove": {"rm"},
	},
	"page": {"connect": {"open"}},
	"vm": {
		"start": {"up"}, "create": {"up"}, "new": {"up"}, "stop": {"down"}, "kill": {"down"}, "delete": {"down"}, "rm": {"down"},
		"ls": {"list"}, "ps": {"list"}, "status": {"list"},
	},
}

// ShellWords ask for a command line on the VM, which there is not.
var ShellWords = []string{"shell", "sh", "bash", "terminal", "console", "repl", "python", "ipython"}

// ShellCommands are commands of a shell for which there is none here; the value is what else helps.
var ShellCommands = map[string]string{"cat": ", and `colab-relay get FILE` downloads it", "rm": ""}

// meant says, after the name of a command that does not exist below parent, what the person
// probably wants. It is empty if nothing comes near.
func meant(parent *cobra.Command, typed string, known []string) string {
	typed = strings.ToLower(typed)
	after := ""
	if parent.HasParent() {
		after = parent.Name()
	} else if slices.Contains(ShellWords, typed) {
		return fmt.Sprintf(": there is no shell on the VM; `%s run -c '!ls'` runs one of its commands, and `%[1]s run -c CODE` runs Python", parent.Name())
	}
	if also, known := ShellCommands[typed]; known && after == "" {
		return fmt.Sprintf(": `%s run -c '!%s FILE'` does it on the VM%s", parent.Name(), typed, also)
	}
	if names := OtherWords[after][typed]; len(names) > 0 {
		return fmt.Sprintf(` (did you mean "%s"?)`, strings.Join(names, `" or "`))
	}
	return suggest.Meant(typed, known)
}

// AddJSONFlag adds --json to a command that prints data.
func AddJSONFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print one JSON document")
}

// Exit codes. Those above 1 are the ones of BSD's sysexits.h. `run` also returns the code
// that the program on the VM gave to sys.exit.
const (
	ExitFailure     = 1
	ExitUsage       = 64 // EX_USAGE
	exitUnreachable = 69 // EX_UNAVAILABLE
	ExitRunning     = 75 // EX_TEMPFAIL
)

// usageError is an error in the command line itself: nothing was tried.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

// Usagef returns a usageError.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// AsUsage makes err an error in the command line.
func AsUsage(err error) error { return usageError{err} }

// reportedError is an error whose next step was printed before.
type reportedError struct {
	error
	code int // the exit code
}

// Reported returns err as the error of a command that printed the next step. code is its exit code.
func Reported(err error, code int) error { return reportedError{err, code} }

// forPeople are the kinds of errors after which a person must correct something first. After the
// others, the same command may work once the VM answers.
var forPeople = []client.Kind{client.KindTooLarge, client.KindWrongSecret, client.KindWrongProtocol}

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[remoterun.ExitCode](err); ok {
		return int(exit)
	}
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, pairing.ErrBadName) || errors.Is(err, auth.ErrPairing) || isWrongID(err) {
		return ExitUsage
	}
	if reported, ok := errors.AsType[reportedError](err); ok {
		return reported.code
	}
	if errors.Is(err, runlist.ErrStillRunning) { // before a lost connection: a script must not run the code again
		return ExitRunning
	}
	if _, ok := errors.AsType[*page.NoTabError](err); ok {
		return exitUnreachable
	}
	if lost, ok := errors.AsType[*client.Error](err); ok && !slices.Contains(forPeople, lost.Kind) {
		return exitUnreachable
	}
	return ExitFailure
}

// isWrongID reports whether err is about the id of a run or a cell that a person gave.
func isWrongID(err error) bool {
	return errors.Is(err, notebook.ErrNoCell) || errors.Is(err, runlist.ErrNoSuchRun) || errors.Is(err, runlist.ErrAmbiguous)
}

// Interrupted replaces the error of a request that a signal ended: that the VM did not answer
// in time is not its cause.
func Interrupted(ctx context.Context, err error) error {
	_, unanswered := errors.AsType[*client.Error](err)
	if ctx.Err() == nil || errors.Is(err, runlist.ErrStillRunning) || !unanswered && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return terminal.ErrInterrupted
}

// Finish prints an error of cmd and its next step, and returns the exit code.
func Finish(err error, cmd *cobra.Command, std terminal.Streams) int {
	code, wrongName := ExitCode(err), isWrongID(err)
	if namesRuntime := cmd.Flags().Changed("runtime"); namesRuntime && errors.Is(err, pairing.ErrNotPaired) {
		code, wrongName = ExitUsage, true
	}
	if _, silent := errors.AsType[remoterun.ExitCode](err); err == nil || silent || errors.Is(err, remoterun.ErrPrinted) {
		return code
	}
	step := hint.Of(err).Person
	if code == ExitUsage && !wrongName {
		step = fmt.Sprintf("run `%s --help`", cmd.CommandPath())
	}
	fmt.Fprintf(std.Err, "%s: %s\n", cmd.Root().Name(), plain.Text(err.Error()))
	if step != "" {
		fmt.Fprintf(std.Err, "  next step: %s\n", plain.Line(step))
	}
	return code
}

// PrintJSON writes v as one JSON document. It writes invisible characters as escapes: they
// may come from a VM, and a terminal or an editor may obey them.
func PrintJSON(out io.Writer, v any) error {
	text, err := plain.JSON(v, "  ")
	if err != nil {
		return fmt.Errorf("write JSON: %v", err)
	}
	_, err = out.Write(text)
	return err
}

// Fitted breaks the lines of text that are too long for the terminal out.
func Fitted(out io.Writer, text string) string {
	if !terminal.Is(out) {
		return text
	}
	return wrap(text, terminal.Width(out))
}

// wrap breaks the lines of text at spaces so that none is longer than width. It continues
// an indented line below its last column, which two spaces separate from the others.
func wrap(text string, width int) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		indent := ""
		if strings.HasPrefix(line, " ") {
			indent = strings.Repeat(" ", lastColumn(line))
		}
		for len([]rune(line)) > width {
			at := strings.LastIndex(string([]rune(line)[:width+1]), " ")
			if at <= len(indent) {
				break // a word that is longer than a line
			}
			lines = append(lines, strings.TrimRight(line[:at], " "))
			line = indent + line[at+1:]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// lastColumn returns where the last column of an indented line begins.
func lastColumn(line string) int {
	begins := len(line) - len(strings.TrimLeft(line, " "))
	if at := strings.LastIndex(line[begins:], "  "); at >= 0 {
		return begins + at + 2
	}
	return begins + 2
}

// spaced puts an empty line between the paragraphs of a text, which are lines that are
// not indented.
func spaced(text string) string {
	var b strings.Builder
	before := ""
	for line := range strings.SplitSeq(text, "\n") {
		if before != "" && line != "" && !strings.HasPrefix(before, " ") && !strings.HasPrefix(line, " ") {
			b.WriteString("\n")
		}
		b.WriteString(line + "\n")
		before = line
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ProgressLine describes the progress of a transfer. During an outage it gives the reason
// instead of the speed.
func ProgressLine(meter *progress.Meter, failure error, now time.Time) string {
	p, at := meter.Last()
	switch {
	case failure == nil || now.Sub(at) <= terminal.QuietTime:
		return meter.Describe(now)
	case p.Total == 0:
		return fmt.Sprintf("waiting for the VM: %v", failure)
	}
	return fmt.Sprintf("%s, waiting for the VM: %v", progress.Share(p.Done, p.Total), failure)
}

// Root returns the program's command without its subcommands, and run, which it does without one.
func Root(set *config.Settings, run func(*cobra.Command, []string) error) *cobra.Command {
	root := &cobra.Command{
		Use:   CommandName,
		Short: "Run Python on a paired Colab VM",
		Long: "Run Python on a Google Colab VM, or on any other machine, from this computer.\n" +
			"A runtime is a VM that this computer is paired with. The executor is the program that runs there; on Colab, its cell starts it. Started without a command by an MCP host, it is the MCP server for that host's AI agent.",
		Example: "  colab-relay pair                       # paste what the executor printed\n" +
			"  colab-relay run train.py               # run a file on the VM\n" +
			"  colab-relay get /content/model.pt      # download a result\n" +
			"  colab-relay install claude-desktop     # let an agent use the VM",
		Version:       Version, // without a template of ours, which adds 3 MB to the program
		Args:          NoSuchCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          run,
	}
	set.AddFlags(root.Flags())
	root.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true }) // those of serve, which it is then
	root.SetFlagErrorFunc(FlagError)
	root.SetHelpFunc(ShowHelp)
	cobra.EnableCommandSorting = false
	root.CompletionOptions.DisableDefaultCmd = true // setup.CompletionCommand is shorter
	return root
}
