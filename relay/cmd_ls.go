package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// maxPages bounds how many answers of up to contract.MaxListFiles entries make a listing.
const maxPages = 10

// lsOptions are the flags of `colab-relay ls`.
type lsOptions struct {
	runtime     string
	all, asJSON bool
}

func lsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:   "ls [PATH]",
		Short: "List a folder on the VM",
		Long: "List a folder or file on the VM: size, time of the last change, and name. Without PATH, it lists /content, or the executor's working directory if the VM has no /content. The name of a folder ends in a slash.\n" +
			fmt.Sprintf("At most %d entries are listed; a note says if there are more.", maxPages*contract.MaxListFiles),
		Example: "  colab-relay ls\n  colab-relay ls -a /content/drive/MyDrive\n  colab-relay ls results --json",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := append(args, "/content")[0]
			if path == "" {
				return usagef("PATH is empty: name a folder on the VM, such as /content")
			}
			return withVM(cmd.Context(), set, named(o.runtime), std, func(vm openVM) error {
				return o.list(cmd.Context(), vm, path, std)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "also list names that begin with a dot, as --json does")
	addRuntimeFlag(cmd, &o.runtime)
	addJSONFlag(cmd, &o.asJSON)
	return cmd
}

func (o lsOptions) list(ctx context.Context, vm openVM, path string, std terminal.Streams) error {
	got, err := listFolder(ctx, vm, path)
	if err != nil {
		return fmt.Errorf("listing %q: %w", path, err)
	}
	if o.asJSON {
		return printJSON(std.Out, struct {
			Runtime string `json:"runtime"`
			contract.Files
		}{vm.Name, got})
	}
	read, total := len(got.Files), got.FileCount+got.DirCount
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
	if got.Truncated {
		fmt.Fprintf(std.Err, "note: only the first %d of %d entries are listed\n", read, total)
	}
	return nil
}

// listFolder reads a folder, or the entry of a file.
func listFolder(ctx context.Context, vm openVM, path string) (contract.Files, error) {
	all, err := readPages(func(after string) (contract.Files, error) { return vm.Client.FilesAfter(ctx, path, after) })
	if refused, ok := errors.AsType[*contract.Error](err); ok && refused.Code == contract.CodeBadRequest {
		if file, err := vm.Client.Stat(ctx, path, false, 0); err == nil && !file.IsDir {
			return contract.Files{Path: file.Path, FileCount: 1, Files: []contract.File{file.File}}, nil
		}
	}
	return all, err
}

// readPages reads up to maxPages answers. Truncated says whether there is more.
func readPages(read func(after string) (contract.Files, error)) (contract.Files, error) {
	all, err := read("")
	for page := 1; err == nil && all.Truncated && len(all.Files) > 0 && page < maxPages; page++ {
		var next contract.Files
		next, err = read(all.Files[len(all.Files)-1].Name)
		all.Files, all.Truncated = append(all.Files, next.Files...), next.Truncated
	}
	return all, err
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
