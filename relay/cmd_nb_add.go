package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// addOptions are the flags of `colab-relay nb add`.
type addOptions struct {
	nbFile
	cellText
	after    string
	at       int
	markdown bool
	tags     []string
}

func nbAddCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	o := addOptions{nbFile: nbFile{set: set, std: std}}
	cmd := &cobra.Command{
		Use:   "add FILE [-c CODE | SOURCE | -]",
		Short: "Add a cell to a notebook, which is created if it is missing",
		Long: "Add a cell to a notebook and print its id. The source is CODE, the content of the file SOURCE, or stdin; in a terminal without any of them, your editor opens.\n" +
			"The cell goes to the end, unless --after or --at names another place. If FILE does not exist, it becomes a new notebook.",
		Example: "  colab-relay nb add analysis.ipynb -c 'import pandas as pd'\n" +
			"  colab-relay nb add analysis.ipynb --at 0 --markdown -c '# Analysis'\n" +
			"  colab-relay nb add analysis.ipynb --after 3f2a1b0c plot.py",
		Args:              arguments(1, 2),
		ValidArgsFunction: completeNotebooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = cmd.Flags().Changed("code")
			if cmd.Flags().Changed("at") && o.after != "" {
				return usagef("give either --after or --at, not both")
			}
			return o.add(cmd.Context(), args[0], args[1:])
		},
	}
	o.addFlag(cmd)
	cmd.Flags().StringVar(&o.after, "after", "", "put it below the cell with this `ID` or index")
	cmd.Flags().IntVar(&o.at, "at", -1, "give it this `INDEX`; 0 is the first, -1 the end")
	cmd.Flags().BoolVar(&o.markdown, "markdown", false, "make it a Markdown cell")
	cmd.Flags().StringArrayVar(&o.tags, "tag", nil, "give it this `TAG`, such as raises-exception; may be repeated")
	addJSONFlag(cmd, &o.json)
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
		return 0, usagef("--at %d: must be from 0 to %d, or -1 for the end", o.at, d.Len())
	}
	return o.at, nil
}
