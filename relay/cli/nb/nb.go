// Package nb has `colab-relay nb`: the commands that read, edit and run notebooks on this computer.
// It must not read or write the JSON of a notebook itself: relay/notebook does, and relay/nbrun runs
// notebooks. Start reading at Command, and at notebookCommand for what all of them use.
package nb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
)

// Command returns `colab-relay nb`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nb COMMAND",
		Short: "Read, edit and run notebooks on this computer",
		Long: "Read, edit and run .ipynb files of this computer. Edits change only the lines they are about, so a file keeps its form, its outputs and its metadata.\n" +
			"A cell is named by its id, which `colab-relay nb cells FILE` lists, or by its index, which counts from 0. Quote ids that begin with #, because a shell takes them for comments.",
		Example: "  colab-relay nb cells analysis.ipynb\n" +
			"  colab-relay nb add analysis.ipynb -c 'df.describe()'\n" +
			"  colab-relay nb run analysis.ipynb",
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		cellsCommand(set, std),
		addCommand(set, std),
		editCommand(set, std),
		rmCommand(set, std),
		mvCommand(set, std),
		runCommand(set, std),
		reportCommand(set, std),
		upgradeCommand(set, std),
		stripCommand(set, std),
	)
	return cmd
}

// notebookCommand is what the commands about a notebook have in common.
type notebookCommand struct {
	set  *config.Settings
	std  terminal.Streams
	json bool
	cfg  config.Config
}

// open opens and reads the notebook at path.
func (c *notebookCommand) open(path string) (*notebook.File, *notebook.Document, error) {
	return c.openWith(notebook.OpenFile, path)
}

// openWith is open with one of notebook's functions.
func (c *notebookCommand) openWith(open func(path, lockDir string) (*notebook.File, error), path string) (*notebook.File, *notebook.Document, error) {
	file, d, cfg, err := cli.OpenNotebook(c.set, open, path)
	c.cfg = cfg
	return file, d, err
}

// edited is what the commands answer about an edit, with the names of the tools' answers.
type edited struct {
	CellID    string   `json:"cell_id,omitempty"`
	CellIndex *int     `json:"cell_index,omitempty"` // absent for a deleted cell
	Source    string   `json:"source,omitempty"`     // of a deleted cell
	CellCount int      `json:"cell_count"`
	Digest    string   `json:"digest"`
	Notes     []string `json:"notes,omitempty"`
	written   bool
}

// edit edits the notebook at path.
func (c *notebookCommand) edit(ctx context.Context, path string, change func(d *notebook.Document, e *edited) error) (edited, error) {
	file, _, err := c.open(path)
	if err != nil {
		return edited{}, err
	}
	return c.change(ctx, file, path, change)
}

// change edits a notebook and prints what a person or a program needs to know of any edit.
func (c *notebookCommand) change(ctx context.Context, file *notebook.File, path string, change func(d *notebook.Document, e *edited) error) (edited, error) {
	var e edited
	done, err := file.Edit(ctx, "", func(d *notebook.Document) error {
		e = edited{}
		return change(d, &e)
	})
	if err != nil {
		return e, err
	}
	e.CellCount, e.Digest, e.written = done.After.Len(), done.After.Digest(), done.Written
	e.Notes = append(e.Notes, done.Notes...)
	if c.json {
		return e, cli.PrintJSON(c.std.Out, e)
	}
	for _, note := range e.Notes {
		fmt.Fprintf(c.std.Err, "note: %s\n", plain.Line(note))
	}
	if !e.written {
		fmt.Fprintf(c.std.Err, "%s was not changed: it already has this content\n", plain.Line(path))
	}
	return e, nil
}

// say tells a person what an edit did.
func (c *notebookCommand) say(e edited, format string, args ...any) {
	if e.written && !c.json {
		fmt.Fprintln(c.std.Err, plain.Line(fmt.Sprintf(format, args...)))
	}
}

// findCell returns the index of the cell that a person names by its id or its index.
func findCell(d *notebook.Document, name, path string) (int, error) {
	at, err := d.Find(name)
	if err == nil {
		return at, nil
	}
	if errors.Is(err, notebook.ErrCellChanged) {
		return 0, fmt.Errorf("%w since its id %q was shown; `colab-relay nb cells %s` shows the current ids", err, name, pasted(path))
	}
	if at, wrong := strconv.Atoi(name); wrong == nil && at >= 0 && at < d.Len() {
		return at, nil
	}
	meant := ""
	if missing, ok := errors.AsType[*notebook.NoCellError](err); ok && len(missing.Nearest) > 0 {
		meant = suggest.Meant(name, missing.Nearest)
	}
	return 0, fmt.Errorf("%w%s; `colab-relay nb cells %s` lists the ids", err, meant, pasted(path))
}

// shellSafe is a path that means itself in any shell.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_./\\:@%+=,-]+$`)

// pasted returns a path for a command that a person may paste into a shell: the names of files
// come from anybody.
func pasted(path string) string {
	if path = plain.Line(path); strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	if shellSafe.MatchString(path) && (filepath.Separator == '\\' || !strings.Contains(path, `\`)) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// headline returns what tells a person which cell it is: its title, or its first line.
func headline(cell notebook.Cell) string {
	for line := range strings.Lines(cell.Source) {
		if line = strings.TrimSpace(line); line != "" {
			return cmp.Or(cell.Title, line)
		}
	}
	return cell.Title
}

// completeNotebooks completes a notebook's name, and after it names of files.
func completeNotebooks(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"ipynb"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// completeCells completes a notebook's name, and as the second argument its cells.
func completeCells(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return []string{"ipynb"}, cobra.ShellCompDirectiveFilterFileExt
	case 1:
		return cellIDs(args[0]), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// cellIDs returns the ids of a notebook's cells with their headlines, none if that takes long.
func cellIDs(path string) []string {
	found := make(chan []string, 1)
	go func() {
		var ids []string
		if d, err := readNotebook(path); err == nil {
			for i := range d.Len() {
				cell := d.Cell(i)
				ids = append(ids, cobra.CompletionWithDesc(plain.Line(cell.Handle), plain.Line(fmt.Sprintf("%d: %.40s", i, headline(cell)))))
			}
		}
		found <- ids
	}()
	select {
	case ids := <-found:
		return ids
	case <-time.After(cli.CompletionTime):
		return nil
	}
}
