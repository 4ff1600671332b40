package main

import (
	"context"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/terminal"
)

func nbRmCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &nbFile{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "rm FILE ID",
		Short: "Delete a cell",
		Long: "Delete a cell from a notebook. Variables that it has made stay in the kernel.\n" +
			"`colab-relay nb cells FILE ID > FILE2` keeps its source; `colab-relay nb add FILE FILE2` adds it again.",
		Example:           "  colab-relay nb rm analysis.ipynb 3f2a1b0c\n  colab-relay nb rm analysis.ipynb 0",
		Args:              arguments(2, 2),
		ValidArgsFunction: completeCells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.deleteCell(cmd.Context(), args[0], args[1])
		},
	}
	addJSONFlag(cmd, &c.json)
	return cmd
}

func (c *nbFile) deleteCell(ctx context.Context, path, id string) error {
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
