// Package files has `colab-relay put`, which finds out what is to be uploaded, and where to. It must
// not upload itself: the operation of upload_to_colab does. Start reading at PutCommand.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/op"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/shared/filename"
)

// put is a call of `colab-relay put`.
type put struct {
	set              *config.Settings
	std              terminal.Streams
	runtime, to      string
	overwrite, force bool
	asJSON           bool
}

// PutCommand returns `colab-relay put`.
func PutCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	p := put{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "put LOCAL... [REMOTE]",
		Short: "Upload files or folders to the VM; run it again to resume",
		Long: "Upload files or folders to the VM and check them by SHA-256. If the upload is stopped or the connection breaks, run the same command again to resume it.\n" +
			"Without REMOTE, the upload goes into /content, or into the executor's working directory if the VM has no /content. If REMOTE is a folder or ends in a slash, a file goes into it.\n" +
			"The last argument is REMOTE if nothing on this computer has that name; after several LOCALs, it must also begin or end with a slash. With --to, all arguments are LOCALs.\n" +
			"A file on the VM is replaced if an earlier upload from this computer put it there and it has not changed since. Any other file is replaced only with --overwrite.\n" +
			"Files that usually contain keys or passwords are uploaded only after you confirm, or with --force.",
		Example: "  colab-relay put data.csv\n  colab-relay put train.py helpers.py\n  colab-relay put photos /content/photos\n  colab-relay put a.csv b.csv --to data",
		Args:    cli.Arguments(1, maxPut),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // files
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sources, remote, err := putArguments(args, p.to, cmd.Flags().Changed("to"))
			if err != nil {
				return err
			}
			return p.run(cmd.Context(), sources, remote)
		},
	}
	cli.AddRuntimeFlag(cmd, &p.runtime)
	cli.AddJSONFlag(cmd, &p.asJSON)
	cmd.Flags().BoolVar(&p.overwrite, "overwrite", false, "replace a different file of the same name on the VM")
	cmd.Flags().BoolVar(&p.force, "force", false, "upload files that usually contain keys or passwords without asking")
	cmd.Flags().StringVar(&p.to, "to", "", "upload into this `FOLDER` of the VM; all arguments are then files or folders on this computer")
	return cmd
}

// run uploads all sources, after the person has agreed to each that may be secret. It stops at the
// first error.
func (p put) run(ctx context.Context, sources []string, remote string) error {
	cfg := config.Load(*p.set)
	if err := cfg.Err(); err != nil {
		return err
	}
	guards := make([]*transfer.Guard, len(sources))
	for i, local := range sources {
		if !p.force {
			guards[i] = cfg.Guard
		}
		err := transfer.CheckUpload(ctx, local, guards[i])
		switch {
		case errors.Is(err, transfer.ErrGuarded) && terminal.Confirm(ctx, p.std, plain.Text(err.Error())+"\nUpload it anyway?"):
			guards[i] = nil
		case err != nil:
			return err
		}
	}
	upload := op.OperationOf("upload_to_colab")
	return cli.WithPerson(ctx, p.set, p.std, cli.Named(p.runtime), upload, func(ctx context.Context, by op.Person) error {
		var answers []op.Answer
		for i, local := range sources {
			answer, err := upload.Do(ctx, by, &op.UploadArgs{Local: local, Remote: remote, Overwrite: p.overwrite, Guard: guards[i]})
			if left := len(sources) - i - 1; err != nil && left > 0 {
				err = fmt.Errorf("%w; not transferred either: %s", err, plain.Count(left, "further argument"))
			}
			if err == nil {
				answers = append(answers, answer)
			}
			if p.asJSON {
				answer.PrintNotes()
			} else {
				err = cmp.Or(err, answer.Print())
			}
			if err != nil && len(sources) > 1 && p.asJSON {
				return errors.Join(err, cli.PrintJSON(p.std.Out, append([]op.Answer{}, answers...)))
			}
			if err != nil {
				return err
			}
		}
		switch {
		case !p.asJSON:
			return nil
		case len(sources) == 1:
			return cli.PrintJSON(p.std.Out, answers[0])
		}
		return cli.PrintJSON(p.std.Out, answers)
	})
}

// maxPut bounds the arguments of put: a shell's pattern may name many files.
const maxPut = 10_000

// putArguments divides the arguments of put into what is uploaded and its place on the VM,
// empty for the default one. into is the folder of --to. It refuses what it could only guess.
func putArguments(args []string, into string, hasInto bool) (sources []string, remote string, err error) {
	typed := args
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "" {
			return nil, "", cli.Usagef("LOCAL is empty: name a file or folder on this computer")
		}
		if args[i], err = filename.Existing(arg); err != nil {
			return nil, "", cli.AsUsage(err)
		}
	}
	if hasInto {
		if into == "" {
			return nil, "", cli.Usagef("--to is empty: name a folder on the VM, such as /content/data")
		}
		if err := filename.CheckTyped(into); err != nil {
			return nil, "", cli.AsUsage(err)
		}
		return args, asFolder(into), sameNames(args)
	}
	last := args[len(args)-1]
	named := transfer.RemotePath(typed[len(args)-1], runtime.GOOS) // a leading ~ is the VM's home folder
	_, inHome := filename.InHome(named)
	likeFolder := inHome || strings.HasPrefix(named, "/") || strings.HasSuffix(named, "/")
	before := args[:len(args)-1]
	_, err = os.Stat(last)
	here := err == nil
	switch {
	case len(before) == 0:
		return args, "", nil
	case here && likeFolder:
		return nil, "", cli.Usagef("%q is on this computer and may also name a folder on the VM: to upload the others into that folder, leave it out and write `--to %s`; to upload it too, add `--to .`, the executor's working directory", last, last)
	case here:
		return args, "", sameNames(args)
	case len(before) == 1:
		return before, named, nil
	case likeFolder:
		return before, asFolder(named), sameNames(before)
	}
	return nil, "", cli.Usagef("%q is not on this computer; if it is a folder on the VM, write `--to %s`", last, last)
}

// asFolder returns a path on the VM that names a folder, whether that exists or not.
func asFolder(remote string) string {
	return strings.TrimRight(transfer.RemotePath(remote, runtime.GOOS), "/") + "/"
}

// sameNames refuses sources that would get one name in their folder on the VM.
func sameNames(sources []string) error {
	first := map[string]string{}
	for _, source := range sources {
		full, err := filepath.Abs(source)
		if err != nil {
			full = source
		}
		name := filepath.Base(full)
		if other, taken := first[name]; taken {
			return cli.Usagef("%q and %q would both be uploaded as %q: upload them one by one", other, source, name)
		}
		first[name] = source
	}
	return nil
}
