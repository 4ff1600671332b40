// Package cli is what the commands of colab-relay share: flags and arguments, help, completion,
// exit codes, what is printed, and the VM, history and notebook that a command works on. It makes
// the commands of relay/op' operations, and must not import the packages below it, which have
// the others.
//
// Start reading at Operations in operation.go and RunsCommand in session.go.
package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/op"
	"colabrelay/relay/suggest"
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
