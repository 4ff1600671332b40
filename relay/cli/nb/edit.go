package nb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
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

func addCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := addOptions{notebookCommand: notebookCommand{set: set, std: std}}
	cmd := &cobra.Command{
		Use:   "add FILE [-c CODE | SOURCE | -]",
		Short: "Add a cell to a notebook, which is created if it is missing",
		Long: "Add a cell to a notebook and print its id. The source is CODE, the content of the file SOURCE, or stdin; in a terminal without any of them, your editor opens.\n" +
			"The cell goes to the end, unless --after or --at names another place. If FILE does not exist, it becomes a new notebook.",
		Example: "  colab-relay nb add analysis.ipynb -c 'import pandas as pd'\n" +
			"  colab-relay nb add analysis.ipynb --at 0 --markdown -c '# Analysis'\n" +
			"  colab-relay nb add analysis.ipynb --after 3f2a1b0c plot.py",
		Args:              cli.Arguments(1, 2),
		ValidArgsFunction: completeNotebooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = cmd.Flags().Changed("code")
			if cmd.Flags().Changed("at") && o.after != "" {
				return cli.Usagef("give either --after or --at, not both")
			}
			return o.add(cmd.Context(), args[0], args[1:])
		},
	}
	o.addFlag(cmd)
	cmd.Flags().StringVar(&o.after, "after", "", "put it below the cell with this `ID` or index")
	cmd.Flags().IntVar(&o.at, "at", -1, "give it this `INDEX`; 0 is the first, -1 the end")
	cmd.Flags().BoolVar(&o.markdown, "markdown", false, "make it a Markdown cell")
	cmd.Flags().StringArrayVar(&o.tags, "tag", nil, "give it this `TAG`, such as raises-exception; may be repeated")
	cli.AddJSONFlag(cmd, &o.json)
	return cmd
}

func (o *addOptions) add(ctx context.Context, path string, args []string) error {
	file, _, err := o.openWith(notebook.OpenOrNew, path)
	if err != nil {
		return err
	}
	cell := notebook.NewCell{Type: notebook.Code, Tags: o.tags}
	if o.markdown {
		cell.Type = notebook.Markdown
	}
	edit, temp := false, ""
	if cell.Source, edit, err = o.cellText.text(ctx, args, o.std); edit {
		cell.Source, temp, err = writeInEditor("", cell.Type, o.set.Getenv, o.std)
	}
	if err != nil {
		return err
	}
	e, err := o.change(ctx, file, path, func(d *notebook.Document, e *edited) error {
		at, err := o.place(d, path)
		if err != nil {
			return err
		}
		e.CellIndex = &at
		e.CellID, err = d.Insert(at, cell)
		return err
	})
	if err = forget(temp, err); err != nil || o.json {
		return err
	}
	o.say(e, "added a cell to %s; its index is %d", path, *e.CellIndex)
	_, err = fmt.Fprintln(o.std.Out, plain.Line(e.CellID))
	return err
}

// place returns the index that the new cell gets.
func (o *addOptions) place(d *notebook.Document, path string) (int, error) {
	switch {
	case o.after != "":
		at, err := findCell(d, o.after, path)
		return at + 1, err
	case o.at == -1:
		return d.Len(), nil
	case o.at < 0 || o.at > d.Len():
		return 0, cli.Usagef("--at %d: must be from 0 to %d, or -1 for the end", o.at, d.Len())
	}
	return o.at, nil
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

func editCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := editOptions{notebookCommand: notebookCommand{set: set, std: std}}
	cmd := &cobra.Command{
		Use:   "edit FILE ID [-c CODE | SOURCE | -]",
		Short: "Change the source of a cell",
		Long: "Change the source of a cell to CODE, to the content of the file SOURCE, or to stdin; in a terminal without any of them, your editor opens with the cell. The editor is the one that VISUAL or EDITOR names.\n" +
			"--find and --replace change a part of the source, which must occur exactly once. Outputs stay as they are until the cell runs.",
		Example: "  colab-relay nb edit analysis.ipynb 3f2a1b0c\n" +
			"  colab-relay nb edit analysis.ipynb 3f2a1b0c --find 'epochs = 3' --replace 'epochs = 10'\n" +
			"  colab-relay nb edit --dry-run analysis.ipynb 0 -c '# Analysis'",
		Args:              cli.Arguments(2, 3),
		ValidArgsFunction: completeCells,
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
	cli.AddJSONFlag(cmd, &o.json)
	return cmd
}

var cellTypes = []string{string(notebook.Code), string(notebook.Markdown), string(notebook.Raw)}

// check refuses flags that do not fit together.
func (o *editOptions) check(replaces bool, args []string) error {
	switch known := strings.Join(cellTypes, " "); {
	case o.finds && (o.given || len(args) > 0):
		return cli.Usagef("--find changes a part of the source, and -c, SOURCE and stdin all of it: give one of them")
	case replaces && !o.finds:
		return cli.Usagef("--replace needs --find, which says what to replace")
	case o.finds && o.find == "":
		return cli.Usagef("--find is empty: give a text that occurs once in the cell")
	case o.kind != "" && !strings.Contains(" "+known+" ", " "+o.kind+" "):
		return cli.Usagef("--type %q%s: use code, markdown or raw", o.kind, suggest.Meant(o.kind, cellTypes))
	case o.json && o.dryRun:
		return cli.Usagef("--json and --dry-run cannot be combined: a dry run prints a diff")
	}
	return nil
}

func (o *editOptions) edit(ctx context.Context, path, id string, args []string) error {
	file, d, err := o.open(path)
	if err != nil {
		return err
	}
	at, err := findCell(d, id, path)
	if err != nil {
		return err
	}
	before := d.Cell(at)
	source, temp, err := o.newSource(ctx, before, args)
	if err != nil {
		return err
	}
	apply := func(d *notebook.Document, e *edited) error {
		at, err := d.Find(before.Handle)
		if err != nil {
			return err
		}
		if d.Cell(at).Source != before.Source {
			return fmt.Errorf("%w meanwhile: run the same command again", notebook.ErrCellChanged)
		}
		e.CellID, e.CellIndex = before.Handle, &at
		if err := d.SetSource(at, source, notebook.CellType(o.kind)); err != nil {
			return err
		}
		e.CellID = d.Cell(at).Handle // one that depends on the source is new
		return nil
	}
	if o.dryRun {
		return errors.Join(o.preview(d, before, apply), forget(temp, nil))
	}
	e, err := o.change(ctx, file, path, apply)
	if err = forget(temp, err); err == nil {
		o.say(e, "changed cell %s of %s; its index is %d", e.CellID, path, *e.CellIndex)
	}
	return err
}

// newSource returns the cell's new source, and the file of the person's editor if one wrote it.
func (o *editOptions) newSource(ctx context.Context, cell notebook.Cell, args []string) (source, temp string, err error) {
	switch {
	case o.finds:
		source, err = replaceOnce(cell.Source, notebook.WithLineEnds(cell.Source, o.find), notebook.WithLineEnds(cell.Source, o.replace))
		return source, "", err
	case o.kind != "" && !o.given && len(args) == 0:
		return cell.Source, "", nil
	}
	source, inEditor, err := o.cellText.text(ctx, args, o.std)
	if err == nil && !inEditor {
		source, err = wholeSource(cell.Source, source)
	}
	if !inEditor || err != nil {
		return source, "", err
	}
	return writeInEditor(cell.Source, cell.Type, o.set.Getenv, o.std)
}

// wholeSource returns the source that replaces all of a cell's. It may come from somebody who read
// the cell where some of its characters are not shown.
func wholeSource(before, after string) (string, error) {
	after = notebook.WithLineEnds(before, after)
	if loss := notebook.Loss(before, after); loss != "" {
		return "", fmt.Errorf("%s: change a part with --find, or use your editor", loss)
	}
	return after, nil
}

// replaceOnce replaces a text that must occur once.
func replaceOnce(source, find, replace string) (string, error) {
	switch n := strings.Count(source, find); n {
	case 0:
		return "", errors.New("the cell does not have the text of --find: `colab-relay nb cells FILE ID` prints the cell")
	case 1:
		return strings.Replace(source, find, replace, 1), nil
	default:
		return "", fmt.Errorf("the cell has the text of --find %d times: give more of the lines around it", n)
	}
}

// preview prints what change would change in a cell.
func (o *editOptions) preview(d *notebook.Document, before notebook.Cell, change func(d *notebook.Document, e *edited) error) error {
	changed := *d
	var e edited
	if err := change(&changed, &e); err != nil {
		return err
	}
	after := changed.Cell(before.Index)
	if after.Type != before.Type {
		fmt.Fprintf(o.std.Err, "the cell would become one of the type %s\n", after.Type)
	}
	name := fmt.Sprintf("cell %d (id %s)", before.Index, before.Handle)
	diff, _ := render.Clip(notebook.SourceDiff(name, name, before.Source, after.Source), notebook.DiffRunes)
	_, err := io.WriteString(o.std.Out, plain.Text(diff))
	return err
}

func mvCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &notebookCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:               "mv FILE ID INDEX",
		Short:             "Move a cell",
		Long:              "Move a cell so that INDEX is its index afterwards. Indexes count from 0; -1 is the end.",
		Example:           "  colab-relay nb mv analysis.ipynb 3f2a1b0c 0\n  colab-relay nb mv analysis.ipynb 3f2a1b0c -- -1",
		Args:              cli.Arguments(3, 3),
		ValidArgsFunction: completeCells,
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := strconv.Atoi(args[2])
			if err != nil || to < -1 {
				return cli.Usagef("INDEX %q: use a whole number from 0, or -1 for the end", args[2])
			}
			return c.moveCell(cmd.Context(), args[0], args[1], to)
		},
	}
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

func (c *notebookCommand) moveCell(ctx context.Context, path, id string, to int) error {
	e, err := c.edit(ctx, path, func(d *notebook.Document, e *edited) error {
		at, err := findCell(d, id, path)
		if err != nil {
			return err
		}
		last, target := d.Len()-1, to
		switch {
		case target == -1:
			target = last
		case target > last:
			return cli.Usagef("INDEX %d: the last cell has the index %d", target, last)
		}
		if err := d.Move(at, target); err != nil {
			return err
		}
		e.CellID, e.CellIndex = d.Cell(target).Handle, &target
		return nil
	})
	if err == nil {
		c.say(e, "moved cell %s of %s; its index is %d", e.CellID, path, *e.CellIndex)
	}
	return err
}

func rmCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &notebookCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "rm FILE ID",
		Short: "Delete a cell",
		Long: "Delete a cell from a notebook. Variables that it has made stay in the kernel.\n" +
			"`colab-relay nb cells FILE ID > FILE2` keeps its source; `colab-relay nb add FILE FILE2` adds it again.",
		Example:           "  colab-relay nb rm analysis.ipynb 3f2a1b0c\n  colab-relay nb rm analysis.ipynb 0",
		Args:              cli.Arguments(2, 2),
		ValidArgsFunction: completeCells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.deleteCell(cmd.Context(), args[0], args[1])
		},
	}
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

func (c *notebookCommand) deleteCell(ctx context.Context, path, id string) error {
	title := ""
	e, err := c.edit(ctx, path, func(d *notebook.Document, e *edited) error {
		at, err := findCell(d, id, path)
		if err != nil {
			return err
		}
		cell := d.Cell(at)
		e.CellID, e.Source, title = cell.Handle, cell.Source, headline(cell)
		return d.Delete(at)
	})
	if err == nil {
		c.say(e, "deleted cell %s of %s: %.60s", e.CellID, path, title)
	}
	return err
}

func upgradeCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &notebookCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "upgrade FILE",
		Short: "Give each cell an id: make a notebook one of nbformat 4.5",
		Long: "Make a notebook of nbformat 4.0 to 4.4 one of 4.5, in which each cell has an id that stays the same. Colab's ids are kept.\n" +
			"Nothing else needs it: cells of older notebooks are named by Colab's ids, or by index and source.",
		Example:           "  colab-relay nb upgrade analysis.ipynb",
		Args:              cli.Arguments(1, 1),
		ValidArgsFunction: completeNotebooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := c.edit(cmd.Context(), args[0], func(d *notebook.Document, e *edited) (err error) {
				e.Notes, err = d.Upgrade()
				return err
			})
			if err == nil {
				c.say(e, "upgraded %s", args[0])
			}
			return err
		},
	}
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

func stripCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &notebookCommand{set: set, std: std}
	cmd := &cobra.Command{
		Use:               "strip FILE",
		Short:             "Remove all outputs and execution counts",
		Long:              "Remove all outputs and execution counts from a notebook, such as before it goes into a repository.",
		Example:           "  colab-relay nb strip analysis.ipynb",
		Args:              cli.Arguments(1, 1),
		ValidArgsFunction: completeNotebooks,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.strip(cmd.Context(), args[0]) },
	}
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

func (c *notebookCommand) strip(ctx context.Context, path string) error {
	stripped := 0
	e, err := c.edit(ctx, path, func(d *notebook.Document, _ *edited) error {
		stripped = 0
		for i := range d.Len() {
			if cell := d.Cell(i); cell.ExecutionCount > 0 || len(cell.Outputs) > len("[]") {
				stripped++
			}
		}
		d.Strip()
		return nil
	})
	if err == nil {
		c.say(e, "removed the outputs of %s from %s", plain.Count(stripped, "cell"), path)
	}
	return err
}
