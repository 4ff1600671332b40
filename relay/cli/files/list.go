package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/memory"
)

// maxPages bounds how many answers of up to contract.MaxListFiles entries make a listing.
const maxPages = 10

// lsOptions are the flags of `colab-relay ls`.
type lsOptions struct {
	runtime     string
	all, asJSON bool
}

// LsCommand returns `colab-relay ls`.
func LsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:   "ls [PATH]",
		Short: "List a folder on the VM",
		Long: "List a folder or file on the VM: size, time of the last change, and name. Without PATH, it lists /content, or the executor's working directory if the VM has no /content. The name of a folder ends in a slash. A byte that cannot be shown stands in a name as \\xNN, which all commands take.\n" +
			fmt.Sprintf("At most %d entries are listed; a note says if there are more.", maxPages*contract.MaxListFiles),
		Example: "  colab-relay ls\n  colab-relay ls -a /content/drive/MyDrive\n  colab-relay ls results --json",
		Args:    cli.Arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := append(args, "/content")[0]
			if path == "" {
				return cli.Usagef("PATH is empty: name a folder on the VM, such as /content")
			}
			return cli.WithVM(cmd.Context(), set, cli.Named(o.runtime), std, func(vm cli.LiveVM) error {
				return o.list(cli.Briefly(cmd.Context()), vm, path, std)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "also list names that begin with a dot, as --json does")
	cli.AddRuntimeFlag(cmd, &o.runtime)
	cli.AddJSONFlag(cmd, &o.asJSON)
	return cmd
}

func (o lsOptions) list(ctx context.Context, vm cli.LiveVM, path string, std terminal.Streams) error {
	got, err := listFolder(ctx, vm, path)
	if err != nil {
		return fmt.Errorf("listing %q: %w", path, filename.Explain(err, path))
	}
	if o.asJSON {
		for i := range got.Files {
			got.Files[i].Path = cmp.Or(got.Files[i].Path, got.At(got.Files[i].Name))
		}
		return cli.PrintJSON(std.Out, struct {
			Runtime string `json:"runtime"`
			contract.Files
		}{vm.Name, got})
	}
	read, total := len(got.Files), got.FileCount+got.DirCount
	if read == 0 {
		fmt.Fprintf(std.Err, "%s is empty\n", plain.Name(got.Path))
	}
	if !o.all {
		got.Files = visibleFiles(got.Files)
	}
	table := terminal.NewTable(terminal.Column{Title: "SIZE", Right: true}, terminal.Column{Title: "MODIFIED"}, terminal.Column{Title: "NAME"})
	for _, f := range got.Files {
		size, name := progress.Bytes(f.SizeBytes), plain.Name(f.Name)
		switch {
		case f.IsDir:
			size, name = "-", name+"/"
		case f.Special:
			size = "special"
		}
		table.Add(size, f.Modified.Local().Format("2006-01-02 15:04"), name)
	}
	if len(got.Files) > 0 {
		if err := table.Print(std.Out); err != nil {
			return err
		}
	}
	if read > 0 && len(got.Files) == 0 {
		fmt.Fprintf(std.Err, "note: %s has only hidden files; `colab-relay ls --all` lists them\n", plain.Name(got.Path))
	}
	if got.Truncated {
		fmt.Fprintf(std.Err, "note: only the first %d of %d entries are listed\n", read, total)
	}
	return nil
}

// listFolder reads a folder, or the entry of a file.
func listFolder(ctx context.Context, vm cli.LiveVM, path string) (contract.Files, error) {
	all, err := readPages(func(after string) (contract.Files, error) { return vm.Client.FilesAfter(ctx, path, after) })
	if refused, ok := errors.AsType[*contract.Error](err); ok && refused.Code == contract.CodeBadRequest {
		if file, err := vm.Client.Stat(ctx, path, false, 0); err == nil && !file.IsDir {
			return contract.Files{Path: file.Path, FileCount: 1, Files: []contract.File{file.File}}, nil
		}
	}
	return all, err
}

// readPages reads up to maxPages answers, or as many as there is memory for. Truncated says whether
// there is more.
func readPages(read func(after string) (contract.Files, error)) (contract.Files, error) {
	all, err := read("")
	for page := 1; err == nil && all.Truncated && len(all.Files) > 0 && page < maxPages && hasRoom(all); page++ {
		var next contract.Files
		next, err = read(all.Files[len(all.Files)-1].Name)
		all.Files, all.Truncated = append(all.Files, next.Files...), next.Truncated
	}
	return all, err
}

// hasRoom reports whether the paths of a list, as JSON has them, take less than the memory of all
// lists. A VM can make them long.
func hasRoom(f contract.Files) bool {
	size := int64(0)
	for _, one := range f.Files {
		size += int64(len(f.Path) + 2*len(one.Name))
	}
	return size < memory.Trees.Most()/2
}

func visibleFiles(all []contract.File) []contract.File {
	kept := []contract.File{}
	for _, f := range all {
		if !strings.HasPrefix(f.Name, ".") {
			kept = append(kept, f)
		}
	}
	return kept
}
