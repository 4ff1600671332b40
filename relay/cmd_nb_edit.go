package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/suggest"
	"colabrelay/relay/terminal"
	"colabrelay/relay/tools"
)

// editOptions are the flags of `colab-relay nb edit`.
type editOptions struct {
	nbFile
	cellText
	find, replace string
	finds         bool // find is given
	kind          string
	dryRun        bool
}

func nbEditCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := editOptions{nbFile: nbFile{set: set, std: std}}
	cmd := &cobra.Command{
		Use:   "edit FILE ID [-c CODE | SOURCE | -]",
		Short: "Change the source of a cell",
		Long: "Change the source of a cell to CODE, to the content of the file SOURCE, or to stdin; in a terminal without any of them, your editor opens with the cell. The editor is the one that VISUAL or EDITOR names.\n" +
			"--find and --replace change a part of the source, which must occur exactly once. Outputs stay as they are until the cell runs.",
		Example: "  colab-relay nb edit analysis.ipynb 3f2a1b0c\n" +
			"  colab-relay nb edit analysis.ipynb 3f2a1b0c --find 'epochs = 3' --replace 'epochs = 10'\n" +
			"  colab-relay nb edit --dry-run analysis.ipynb 0 -c '# Analysis'",
		Args:              arguments(2, 3),
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
	addJSONFlag(cmd, &o.json)
	return cmd
}

var cellTypes = []string{string(notebook.Code), string(notebook.Markdown), string(notebook.Raw)}

// check refuses flags that do not fit together.
func (o *editOptions) check(replaces bool, args []string) error {
	switch known := strings.Join(cellTypes, " "); {
	case o.finds && (o.given || len(args) > 0):
		return usagef("--find changes a part of the source, and -c, SOURCE and stdin all of it: give one of them")
	case replaces && !o.finds:
		return usagef("--replace needs --find, which says what to replace")
	case o.finds && o.find == "":
		return usagef("--find is empty: give a text that the cell has once")
	case o.kind != "" && !strings.Contains(" "+known+" ", " "+o.kind+" "):
		return usagef("--type %q%s: use code, markdown or raw", o.kind, suggest.Meant(o.kind, cellTypes))
	case o.json && o.dryRun:
		return usagef("--json and --dry-run cannot be combined: a dry run prints a diff")
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
		source, err = replaceOnce(cell.Source, o.find, o.replace)
		return source, "", err
	case o.kind != "" && !o.given && len(args) == 0:
		return cell.Source, "", nil
	}
	source, inEditor, err := o.cellText.text(ctx, args, o.std)
	if !inEditor {
		return source, "", err
	}
	return writeInEditor(cell.Source, cell.Type, o.set.Getenv, o.std)
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
	name := fmt.Sprintf("cell %d %s", before.Index, before.Handle)
	_, err := io.WriteString(o.std.Out, plain.Text(tools.SourceDiff(name, name, before.Source, after.Source)))
	return err
}
