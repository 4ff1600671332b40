package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/terminal"
)

func nbMvCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &nbFile{set: set, std: std}
	cmd := &cobra.Command{
		Use:               "mv FILE ID INDEX",
		Short:             "Move a cell",
		Long:              "Move a cell so that INDEX is its index afterwards. Indexes count from 0; -1 is the end.",
		Example:           "  colab-relay nb mv analysis.ipynb 3f2a1b0c 0\n  colab-relay nb mv analysis.ipynb 3f2a1b0c -- -1",
		Args:              arguments(3, 3),
		ValidArgsFunction: completeCells,
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := strconv.Atoi(args[2])
			if err != nil || to < -1 {
				return usagef("INDEX %q: use a whole number from 0, or -1 for the end", args[2])
			}
			return c.moveCell(cmd.Context(), args[0], args[1], to)
		},
	}
	addJSONFlag(cmd, &c.json)
	return cmd
}

func (c *nbFile) moveCell(ctx context.Context, path, id string, to int) error {
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
			return usagef("INDEX %d: the last cell has the index %d", target, last)
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
