package runs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/runlist"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// AttachCommand returns `colab-relay attach`.
func AttachCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := cli.RunsCommand{Set: set, Std: std}
	cmd := &cobra.Command{
		Use:   "attach [ID]",
		Short: "Follow a run as if you had started it here",
		Long: "Print the output of a run from its beginning, and follow it as `colab-relay run` does: answer its input(), interrupt it with Ctrl-C, and end with its exit code. The run may have ended already.\n" +
			"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, the command applies to the current run, whoever started it.",
		Example: "  colab-relay attach\n  colab-relay attach 3f2a",
		Args:    cli.Arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.Session(cmd.Context(), args, func(ctx context.Context, s cli.RunSession) error {
				e, err := runlist.Listed(ctx, s.Client, strings.Join(args, ""))
				if err != nil {
					return err
				}
				return remoterun.Attach(ctx, s.VM, e.ExecutionID, s.Console)
			})
		},
	}
	cli.AddRuntimeFlag(cmd, &c.Runtime)
	set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	return cmd
}

// LogsCommand returns `colab-relay logs`.
func LogsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := logsOptions{RunsCommand: cli.RunsCommand{Set: set, Std: std}}
	cmd := &cobra.Command{
		Use:   "logs [ID]",
		Short: "Print a run's output",
		Long: "Print the output of a run so far, without changing anything. To answer its input() or to interrupt it, use `colab-relay attach`.\n" +
			"ID may be the first characters of an id that `colab-relay ps` lists. Without ID, it is the newest run, and not a round of a loop or a call of the relay itself.\n" +
			"The output of a run that has ended comes from this computer's history if that has all of it, without asking the VM. Otherwise it comes from the VM, with the parts that the VM has lost from the history; if the VM does not answer or no longer has the run, it comes from the history.",
		Example: "  colab-relay logs\n  colab-relay logs -f 3f2a\n  colab-relay logs -f --tail 20\n  colab-relay logs --json 3f2a | jq -r 'select(.type==\"stream\").text'",
		Args:    cli.Arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case c.tail < 0:
				return cli.Usagef("--tail %d: must be 0 or more", c.tail)
			case cmd.Flags().Changed("tail"):
				c.options.Tail = &c.tail
			}
			c.options.JSON = c.JSON
			return c.run(cmd.Context(), args)
		},
	}
	cli.AddRuntimeFlag(cmd, &c.Runtime)
	cmd.Flags().BoolVar(&c.JSON, "json", false, "print one event a line, as JSON")
	cmd.Flags().IntVarP(&c.tail, "tail", "n", 0, "print only the last `NUMBER` lines, or events with --json; 0 with -f prints only what is new")
	cmd.Flags().BoolVarP(&c.options.Follow, "follow", "f", false, "keep printing until the run ends; Ctrl-C leaves it running")
	set.AddFlags(cmd.Flags(), "LOCAL_SAVE_DIR")
	return cmd
}

type logsOptions struct {
	cli.RunsCommand
	options remoterun.LogOptions
	tail    int // of --tail
}

// errNotWhole means that the VM is to be asked for a run.
var errNotWhole = errors.New("the history does not have all of the run")

func (c *logsOptions) run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] != "" {
		if err := c.printKept(ctx, args, nil); !errors.Is(err, errNotWhole) {
			return err
		}
	}
	var missing error // why the VM does not have the run
	reading := false
	if !c.options.Follow {
		ctx = cli.Briefly(ctx)
	}
	err := c.Session(ctx, args, func(ctx context.Context, s cli.RunSession) error {
		var e contract.Execution
		if len(args) > 0 {
			e, missing = runlist.Listed(ctx, s.Client, args[0])
		} else {
			e, missing = runlist.Newest(ctx, s.Client)
		}
		if missing != nil {
			return missing
		}
		reading = true
		o := c.options
		o.Fill = s.History.Filler(e.ExecutionID)
		return remoterun.Logs(ctx, s.VM, e, o, s.Console)
	})
	if reading || ctx.Err() != nil || errors.Is(err, runlist.ErrAmbiguous) || missing == nil && !isAway(err) {
		return err
	}
	return c.printKept(ctx, args, cmp.Or(missing, err))
}

// isAway reports whether the history may have what the VM does not answer. That no runtime
// is paired, or not this one, is such an error too.
func isAway(err error) bool {
	if _, unanswered := errors.AsType[*client.Error](err); unanswered {
		return true
	}
	code := contract.CodeOf(err)
	return code == contract.CodeNotFound || code == contract.CodeNewInstance || errors.Is(err, pairing.ErrNotPaired) || errors.Is(err, pairing.ErrNoAddress)
}

// printKept prints the run from the history. missing is why the VM does not answer for it; without
// that, it prints only a run that the history has whole, and otherwise returns errNotWhole.
func (c *logsOptions) printKept(ctx context.Context, args []string, missing error) error {
	cfg := config.Load(*c.Set)
	if err := cfg.Err(); err != nil {
		return err
	}
	kept := cli.OpenHistory(cfg, nil)
	run, err := runlist.Kept(kept, strings.Join(args, ""), c.Runtime)
	if err != nil {
		return cmp.Or(missing, errNotWhole)
	}
	whole, err := kept.Read(run)
	switch {
	case missing != nil && err != nil:
		return err
	case missing != nil:
		fmt.Fprintf(c.Std.Err, "note: this is from the history on this computer: %s\n", plain.Line(missing.Error()))
	case !whole.Complete:
		return errNotWhole
	}
	return remoterun.PrintKept(ctx, whole, c.options, c.Console(cfg))
}

const (
	maxEarlierFiles = 1000     // that are looked for on this computer
	maxEarlierBytes = 16 << 20 // of their contents, and that of the program
	maxEarlierNamed = 5        // in the note
)

// noteEarlier says which modules that the program imports changed since they were put on the VM.
// What the run brings along is on the VM as it is now.
func (o *runOptions) noteEarlier(vm *client.Client, along companions) {
	found := earlierFiles(along.file, transfer.Uploaded(along.options.RecordDir, vm.InstanceID(), filepath.Dir(along.file)))
	found = slices.DeleteFunc(found, func(f transfer.UploadedFile) bool { return along.has(f.Local) })
	if len(found) > 0 {
		fmt.Fprintf(o.Std.Err, "note: %s\n", plain.Line(o.earlierNote(found)))
	}
}

func (o *runOptions) earlierNote(found []transfer.UploadedFile) string {
	named := found[:min(len(found), maxEarlierNamed)]
	var locals []string
	for _, f := range named {
		locals = append(locals, f.Local)
	}
	names := strings.Join(locals, ", ")
	if rest := len(found) - len(named); rest > 0 {
		names += fmt.Sprintf(" and %d more", rest)
	}
	next := "add `" + withWords(locals...) + "` to this command"
	folder := path.Dir(named[0].Remote)
	if !slices.ContainsFunc(named, func(f transfer.UploadedFile) bool { return path.Dir(f.Remote) != folder }) {
		next = "run `" + o.put(append([]string{"--to", plain.Name(folder)}, locals...)...) + "`, or " + next
	}
	return fmt.Sprintf("the VM has an earlier version of %s: %s", names, next)
}

// earlierFiles returns the modules of those uploaded that a program imports and whose content is not
// what was uploaded last.
func earlierFiles(program string, uploaded []transfer.UploadedFile) []transfer.UploadedFile {
	program = filepath.Clean(program)
	room := int64(maxEarlierBytes)
	texts := map[string]string{}
	read := func(local string) bool {
		text, err := bounded.ReadFile(local, room)
		texts[local] = string(text)
		room -= int64(len(text))
		return err == nil
	}
	read(program)
	var found []transfer.UploadedFile
	for _, f := range slices.Backward(uploaded) {
		if _, seen := texts[f.Local]; seen || filepath.Ext(f.Local) != ".py" || len(texts) > maxEarlierFiles {
			continue
		}
		if read(f.Local) && fmt.Sprintf("%x", sha256.Sum256([]byte(texts[f.Local]))) != f.SHA256 {
			found = append(found, f)
		}
	}
	imported := importedBy(program, texts)
	return slices.DeleteFunc(found, func(f transfer.UploadedFile) bool { return !imported[f.Local] })
}

// importedBy returns the files that a program imports, or what it imports, as far as words can
// tell: the name of a module, or of a package around it, stands in a line with an import.
func importedBy(program string, texts map[string]string) map[string]bool {
	byName := map[string][]string{} // places
	for place := range texts {
		below, _ := filepath.Rel(filepath.Dir(program), place)
		for part := range strings.SplitSeq(filepath.ToSlash(strings.TrimSuffix(below, ".py")), "/") {
			byName[part] = append(byName[part], place)
		}
	}
	imported := map[string]bool{program: true}
	for todo := []string{program}; len(todo) > 0; {
		text := texts[todo[0]]
		todo = todo[1:]
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			if !strings.Contains(line, "import") {
				continue
			}
			for word := range strings.FieldsFuncSeq(line, isNoNameRune) {
				for _, place := range byName[word] {
					if !imported[place] {
						imported[place], todo = true, append(todo, place)
					}
				}
				delete(byName, word)
			}
		}
	}
	return imported
}

// isNoNameRune reports whether a character cannot stand in the name of a module.
func isNoNameRune(r rune) bool { return r != '_' && !unicode.In(r, unicode.L, unicode.N, unicode.M) }
