package main

import (
	"context"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

func nbUpgradeCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &nbFile{set: set, std: std}
	cmd := &cobra.Command{
		Use:   "upgrade FILE",
		Short: "Give each cell an id: make a notebook one of nbformat 4.5",
		Long: "Make a notebook of nbformat 4.0 to 4.4 one of 4.5, in which each cell has an id that stays the same. Colab's ids are kept.\n" +
			"Nothing else needs it: cells of older notebooks are named by Colab's ids, or by index and source.",
		Example:           "  colab-relay nb upgrade analysis.ipynb",
		Args:              arguments(1, 1),
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
	addJSONFlag(cmd, &c.json)
	return cmd
}

func nbStripCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &nbFile{set: set, std: std}
	cmd := &cobra.Command{
		Use:               "strip FILE",
		Short:             "Remove all outputs and execution counts",
		Long:              "Remove all outputs and execution counts from a notebook, such as before it goes into a repository.",
		Example:           "  colab-relay nb strip analysis.ipynb",
		Args:              arguments(1, 1),
		ValidArgsFunction: completeNotebooks,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.strip(cmd.Context(), args[0]) },
	}
	addJSONFlag(cmd, &c.json)
	return cmd
}

func (c *nbFile) strip(ctx context.Context, path string) error {
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
