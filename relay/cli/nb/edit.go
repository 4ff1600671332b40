package nb

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"colabrelay/relay/cells"
	"colabrelay/relay/cli"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
)

// addOptions are the flags of `colab-relay nb add`.
type addOptions struct {
	notebookCommand
	cellText
	after    string
	at       int
	markdown bool
	tags     []string
}

func addCommand(c notebookCommand) *cobra.Command {
	o := addOptions{notebookCommand: c}
	cmd := &cobra.Command{
		Use:   "add FILE [-c CODE | SOURCE | -]",
		Short: "Add a cell to a notebook, which is created if it is missing",
		Long: "Add a cell to a notebook and print its id. The source is CODE, the content of the file SOURCE, or stdin; in a terminal without any of them, your editor opens.\n" +
			"The cell goes to the end, unless --after or --at names another place. If FILE does not exist, it becomes a new notebook.",
		Example: "  colab-relay nb add analysis.ipynb -c 'import pandas as pd'\n" +
			"  colab-relay nb add analysis.ipynb --at 0 --markdown -c '# Analysis'\n" +
			"  colab-relay nb add analysis.ipynb --after 3f2a1b0c plot.py",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = cmd.Flags().Changed("code")
			return o.add(cmd.Context(), args[0], args[1:])
		},
	}
	o.addFlag(cmd)
	cmd.Flags().StringVar(&o.after, "after", "", "put it below the cell with this `ID` or index")
	cmd.Flags().IntVar(&o.at, "at", -1, "give it this `INDEX`; 0 is the first, -1 the end")
	cmd.Flags().BoolVar(&o.markdown, "markdown", false, "make it a Markdown cell")
	cmd.Flags().StringArrayVar(&o.tags, "tag", nil, "give it this `TAG`, such as raises-exception; may be repeated")
	return o.command(cmd, 1, 2, completeNotebooks)
}

func (o *addOptions) add(ctx context.Context, path string, args []string) error {
	file, d, err := o.open(notebook.OpenOrNew, path)
	if err != nil {
		return err
	}
	cell := notebook.NewCell{Type: notebook.Code, Tags: o.tags}
	if o.markdown {
		cell.Type = notebook.Markdown
	}
	place := cells.Place{Index: int64(o.at)}
	if o.after != "" {
		before, err := findCell(d, o.after)
		if err != nil {
			return err
		}
		place.After = before.Handle
	}
	source, temp, err := o.cellText.text(ctx, args, &o.notebookCommand, notebook.Cell{Type: cell.Type})
	if err != nil {
		return err
	}
	cell.Source = source
	e, err := cells.Add(ctx, file, cells.AddArgs{Place: place, Cell: cell})
	if err = o.edited(path, e, forget(temp, err)); err == nil && !o.json {
		_, err = fmt.Fprintln(o.std.Out, plain.Line(e.CellID))
	}
	return err
}

// editOptions are the flags of `colab-relay nb edit`.
type editOptions struct {
	notebookCommand
	cellText
	find, replace string
	finds         bool // find is given
	kind          string
	dryRun        bool
}

func editCommand(c notebookCommand) *cobra.Command {
	o := editOptions{notebookCommand: c}
	cmd := &cobra.Command{
		Use:   "edit FILE ID [-c CODE | SOURCE | -]",
		Short: "Change the source of a cell",
		Long: "Change the source of a cell to CODE, to the content of the file SOURCE, or to stdin; in a terminal without any of them, your editor opens with the cell. The editor is the one that VISUAL or EDITOR names.\n" +
			"--find and --replace change a part of the source, which must occur exactly once. Outputs stay as they are until the cell runs.",
		Example: "  colab-relay nb edit analysis.ipynb 3f2a1b0c\n" +
			"  colab-relay nb edit analysis.ipynb 3f2a1b0c --find 'epochs = 3' --replace 'epochs = 10'\n" +
			"  colab-relay nb edit --dry-run analysis.ipynb 0 -c '# Analysis'",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given, o.finds = cmd.Flags().Changed("code"), cmd.Flags().Changed("find")
			if err := o.check(cmd.Flags().Changed("replace"), args[2:]); err != nil {
				return err
			}
			return o.edit(cmd.Context(), args[0], args[1], args[2:])
		},
	}
	o.addFlag(cmd)
	cmd.Flags().StringVar(&o.find, "find", "", "change this `TEXT`, which the source has once")
	cmd.Flags().StringVar(&o.replace, "replace", "", "with --find: the `TEXT` to put there; empty deletes it")
	cmd.Flags().StringVar(&o.kind, "type", "", "make it a cell of this `TYPE`: code, markdown or raw")
	cmd.Flags().BoolVarP(&o.dryRun, "dry-run", "n", false, "print what would change, as a diff, and change nothing")
	return o.command(cmd, 2, 3, completeCells)
}

// check refuses flags that do not fit together.
func (o *editOptions) check(replaces bool, args []string) error {
	switch {
	case o.finds && (o.given || len(args) > 0):
		return cli.Usagef("--find changes a part of the source, and -c, SOURCE and stdin all of it: give one of them")
	case replaces && !o.finds:
		return cli.Usagef("--replace needs --find, which says what to replace")
	case o.finds && o.find == "":
		return cli.Usagef("--find is empty: give a text that occurs once in the cell")
	}
	return nil
}

func (o *editOptions) edit(ctx context.Context, path, id string, args []string) error {
	file, d, err := o.open(notebook.OpenFile, path)
	if err != nil {
		return err
	}
	cell, err := findCell(d, id)
	if err != nil {
		return err
	}
	a := cells.UpdateArgs{How: cells.How{DryRun: o.dryRun}, Cell: cell.Handle, Type: o.kind, Find: o.find, Content: o.replace}
	update, temp := cells.Update, ""
	switch {
	case o.finds:
	case o.kind != "" && !o.given && len(args) == 0:
		a.Content, update = cell.Source, cells.Rewrite(cell.Source)
	default:
		if a.Content, temp, err = o.cellText.text(ctx, args, &o.notebookCommand, cell); err != nil {
			return err
		}
		if temp != "" {
			update = cells.Rewrite(cell.Source)
		}
	}
	e, err := update(ctx, file, a)
	if err = forget(temp, err); err == nil && o.dryRun && !o.json {
		_, err = io.WriteString(o.std.Out, plain.Text(e.Diff))
	}
	return o.edited(path, e, err)
}

func mvCommand(c notebookCommand) *cobra.Command {
	return c.command(&cobra.Command{
		Use:     "mv FILE ID INDEX",
		Short:   "Move a cell",
		Long:    "Move a cell so that INDEX is its index afterwards. Indexes count from 0; -1 is the end.",
		Example: "  colab-relay nb mv analysis.ipynb 3f2a1b0c 0\n  colab-relay nb mv analysis.ipynb 3f2a1b0c -- -1",
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := strconv.Atoi(args[2])
			if err != nil {
				return cli.Usagef("INDEX %q: use a whole number from 0, or -1 for the end", args[2])
			}
			return c.editCell(args[0], args[1], func(nb cells.Notebook, id string) (*cells.Edited, error) {
				return cells.Move(cmd.Context(), nb, cells.MoveArgs{Cell: id, Index: int64(to)})
			})
		},
	}, 3, 3, completeCells)
}

func rmCommand(c notebookCommand) *cobra.Command {
	return c.command(&cobra.Command{
		Use:   "rm FILE ID",
		Short: "Delete a cell",
		Long: "Delete a cell from a notebook. Variables that it has made stay in the kernel.\n" +
			"`colab-relay nb cells FILE ID > FILE2` keeps its source; `colab-relay nb add FILE FILE2` adds it again.",
		Example: "  colab-relay nb rm analysis.ipynb 3f2a1b0c\n  colab-relay nb rm analysis.ipynb 0",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.editCell(args[0], args[1], func(nb cells.Notebook, id string) (*cells.Edited, error) {
				return cells.Delete(cmd.Context(), nb, cells.DeleteArgs{Cell: id})
			})
		},
	}, 2, 2, completeCells)
}

func upgradeCommand(c notebookCommand) *cobra.Command {
	return c.command(&cobra.Command{
		Use:   "upgrade FILE",
		Short: "Give each cell an id: make a notebook one of nbformat 4.5",
		Long: "Make a notebook of nbformat 4.0 to 4.4 one of 4.5, in which each cell has an id that stays the same. Colab's ids are kept.\n" +
			"Nothing else needs it: cells of older notebooks are named by Colab's ids, or by index and source.",
		Example: "  colab-relay nb upgrade analysis.ipynb",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd.Context(), args[0], func(d *notebook.Document, e *cells.Edited) (err error) {
				e.Did = "all cells have ids"
				e.Notes, err = d.Upgrade()
				return err
			})
		},
	}, 1, 1, completeNotebooks)
}

func stripCommand(c notebookCommand) *cobra.Command {
	return c.command(&cobra.Command{
		Use:     "strip FILE",
		Short:   "Remove all outputs and execution counts",
		Long:    "Remove all outputs and execution counts from a notebook, such as before it goes into a repository.",
		Example: "  colab-relay nb strip analysis.ipynb",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd.Context(), args[0], func(d *notebook.Document, e *cells.Edited) error {
				e.Did = fmt.Sprintf("the outputs of %s are removed", plain.Count(d.Strip(), "cell"))
				return nil
			})
		},
	}, 1, 1, completeNotebooks)
}

// change makes an edit of a whole notebook.
func (c *notebookCommand) change(ctx context.Context, path string, edit func(d *notebook.Document, e *cells.Edited) error) error {
	file, _, err := c.open(notebook.OpenFile, path)
	if err != nil {
		return err
	}
	e, err := file.Change(ctx, cells.How{}, edit)
	return c.edited(path, e, err)
}
