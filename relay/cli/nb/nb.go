// Package nb has `colab-relay nb`: the commands that read, edit and run notebooks on this computer.
// It must not read or write the JSON of a notebook itself: relay/notebook does, and relay/nbrun runs
// notebooks. Start reading at Command, and at notebookCommand for what all of them use.
package nb

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cells"
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
	c := notebookCommand{set: set, std: std}
	cmd.AddCommand(cellsCommand(c), addCommand(c), editCommand(c), rmCommand(c), mvCommand(c), runCommand(set, std), reportCommand(c), upgradeCommand(c), stripCommand(c))
	return cmd
}

// notebookCommand is what the commands about a notebook have in common.
type notebookCommand struct {
	set  *config.Settings
	std  terminal.Streams
	json bool
}

// command completes a command whose first argument is a notebook, and whose second one is a cell if
// complete says so.
func (c *notebookCommand) command(cmd *cobra.Command, least, most int, complete cobra.CompletionFunc) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cli.Arguments(least, most), complete
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

// open opens and reads the notebook at path with one of notebook's functions.
func (c *notebookCommand) open(open func(path, lockDir string) (*notebook.File, error), path string) (cells.File, *notebook.Document, error) {
	file, d, cfg, err := cli.OpenNotebook(c.set, open, path)
	return cells.File{File: file, Records: cfg.CheckpointDir, Seen: cfg.Pairings.LastSeen}, d, err
}

// editCell makes an edit of the cell that a person names by its id or its index.
func (c *notebookCommand) editCell(path, name string, edit func(nb cells.Notebook, id string) (*cells.Edited, error)) error {
	file, d, err := c.open(notebook.OpenFile, path)
	if err != nil {
		return err
	}
	cell, err := findCell(d, name)
	if err != nil {
		return err
	}
	e, err := edit(file, cell.Handle)
	return c.edited(path, e, err)
}

// edited prints what an edit did, or why it was not made.
func (c *notebookCommand) edited(path string, e *cells.Edited, err error) error {
	switch {
	case errors.Is(err, cells.ErrPlace), errors.Is(err, notebook.ErrNoIndex):
		return cli.AsUsage(err)
	case err != nil:
		return err
	case c.json:
		return cli.PrintJSON(c.std.Out, e)
	}
	note(c.std.Err, e.Notes)
	switch {
	case e.Changed && e.DryRun:
		fmt.Fprintf(c.std.Err, "%s: nothing was written; the edit would be: %s\n", plain.Line(path), e.Did)
	case e.Changed:
		fmt.Fprintf(c.std.Err, "%s: %s\n", plain.Line(path), e.Did)
	}
	return nil
}

func note(out io.Writer, notes []string) {
	for _, each := range notes {
		fmt.Fprintf(out, "note: %s\n", plain.Line(each))
	}
}

// findCell returns the cell that a person names by its id or its index.
func findCell(d *notebook.Document, name string) (notebook.Cell, error) {
	at, err := d.Find(name)
	missing, isMissing := errors.AsType[*notebook.NoCellError](err)
	if index, wrong := strconv.Atoi(name); isMissing && wrong == nil && index >= 0 && index < d.Len() {
		at, err = index, nil
	}
	switch {
	case err == nil:
		return d.Cell(at), nil
	case isMissing && len(missing.Nearest) > 0:
		return notebook.Cell{}, fmt.Errorf("%w%s; `colab-relay nb cells FILE` lists the ids", err, suggest.Meant(name, missing.Nearest))
	}
	return notebook.Cell{}, fmt.Errorf("%w; `colab-relay nb cells FILE` lists the ids", err)
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
		if file, err := notebook.OpenFile(path, ""); err == nil {
			if d, err := file.Read(); err == nil {
				for i := range d.Len() {
					cell := d.Cell(i)
					ids = append(ids, cobra.CompletionWithDesc(plain.Line(cell.Handle), plain.Line(fmt.Sprintf("%d: %.40s", i, cells.Headline(cell)))))
				}
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
