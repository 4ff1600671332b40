package nb

import (
	"context"

	"github.com/spf13/cobra"

	"colabrelay/relay/cells"
	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/op"
	"colabrelay/relay/terminal"
	"colabrelay/shared/filename"
)

// sourceCommand is a command that gives a cell a source.
type sourceCommand struct {
	set  *config.Settings
	std  terminal.Streams
	op   op.Operation
	code string
	json bool

	written string // the file of an editor that has the source; empty for none
}

// made completes a command that takes up to one source after the arguments of its operation.
func (c *sourceCommand) made(cmd *cobra.Command, given []*op.Argument) *cobra.Command {
	positions := cli.AddArguments(cmd, given)
	cmd.Args = cli.Arguments(len(positions), len(positions)+1)
	cmd.ValidArgsFunction = cli.CompleteArguments(c.set, positions, cobra.ShellCompDirectiveDefault)
	cmd.Flags().StringVarP(&c.code, "code", "c", "", "use `CODE` as the cell's source")
	cli.AddJSONFlag(cmd, &c.json)
	return cmd
}

// do does the operation with these arguments.
func (c *sourceCommand) do(ctx context.Context, args any) error {
	return cli.WithPerson(ctx, c.set, c.std, cli.Named(""), c.op, func(ctx context.Context, by op.Person) error {
		answer, err := c.op.Do(ctx, by, args)
		return cli.PrintAnswer(c.std, answer, forget(c.written, err), c.json)
	})
}

func addCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := sourceCommand{set: set, std: std, op: op.OperationOf("add_code_cell")}
	given, arguments := c.op.Arguments()
	args, markdown := given.(*op.AddArgs), false
	cmd := c.made(&cobra.Command{
		Use:   "add FILE [-c CODE | SOURCE | -]",
		Short: "Add a cell to a notebook, which is created if it is missing",
		Long: "Add a cell to a notebook and print its id. The source is CODE, the content of the file SOURCE, or stdin; in a terminal without any of them, your editor opens.\n" +
			"The cell goes to the end, unless --after or --at names another place. If FILE does not exist, it becomes a new notebook.",
		Example: "  colab-relay nb add analysis.ipynb -c 'import pandas as pd'\n" +
			"  colab-relay nb add analysis.ipynb --at 0 --markdown -c '# Analysis'\n" +
			"  colab-relay nb add analysis.ipynb --after 3f2a1b0c plot.py",
		RunE: func(cmd *cobra.Command, words []string) (err error) {
			args.Path, args.Language, args.Type = words[0], "", notebook.Code
			if markdown {
				args.Type = notebook.Markdown
			}
			args.Source, err = c.source(cmd, words[1:], func() (notebook.Cell, error) { return notebook.Cell{Type: args.Type}, nil })
			if err != nil {
				return err
			}
			return c.do(cmd.Context(), args)
		},
	}, arguments)
	cmd.Flags().BoolVar(&markdown, "markdown", false, "make it a Markdown cell")
	cmd.Flags().StringArrayVar(&args.Tags, "tag", nil, "give it this `TAG`, such as raises-exception; may be repeated")
	return cmd
}

func editCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := sourceCommand{set: set, std: std, op: op.OperationOf("update_cell")}
	given, arguments := c.op.Arguments()
	args := given.(*op.UpdateArgs)
	return c.made(&cobra.Command{
		Use:   "edit FILE ID [-c CODE | SOURCE | -]",
		Short: "Change the source of a cell",
		Long: "Change the source of a cell to CODE, to the content of the file SOURCE, or to stdin; in a terminal without any of them, your editor opens with the cell. The editor is the one that VISUAL or EDITOR names.\n" +
			"--find and --replace change a part of the source, which must occur exactly once. Outputs stay as they are until the cell runs.",
		Example: "  colab-relay nb edit analysis.ipynb 3f2a1b0c\n" +
			"  colab-relay nb edit analysis.ipynb 3f2a1b0c --find 'epochs = 3' --replace 'epochs = 10'\n" +
			"  colab-relay nb edit --dry-run analysis.ipynb 0 -c '# Analysis'",
		RunE: func(cmd *cobra.Command, words []string) error {
			args.Path, args.Cell = words[0], words[1]
			return c.edit(cmd, args, words[2:])
		},
	}, arguments)
}

func (c *sourceCommand) edit(cmd *cobra.Command, args *op.UpdateArgs, words []string) (err error) {
	finds, coded := cmd.Flags().Changed("find"), cmd.Flags().Changed("code")
	present := func() (cell notebook.Cell, err error) {
		cell, err = presentCell(cmd.Context(), args.Path, args.Cell)
		args.Cell, args.Seen = cell.Handle, &cell.Source
		return cell, err
	}
	switch {
	case finds && (coded || len(words) > 0):
		return cli.Usagef("--find changes a part of the source, and -c, SOURCE and stdin all of it: give one of them")
	case cmd.Flags().Changed("replace") && !finds:
		return cli.Usagef("--replace needs --find, which says what to replace")
	case finds && args.Find == "":
		return cli.Usagef("--find is empty: give a text that occurs once in the cell")
	case finds:
	case args.Type != "" && !coded && len(words) == 0:
		var cell notebook.Cell
		cell, err = present()
		args.Content = cell.Source
	default:
		args.Content, err = c.source(cmd, words, present)
	}
	if err != nil {
		return err
	}
	return c.do(cmd.Context(), args)
}

// presentCell reads the cell of a notebook that a person names.
func presentCell(ctx context.Context, path, name string) (cell notebook.Cell, err error) {
	if path, err = filename.Existing(path); err != nil {
		return cell, err
	}
	file, err := notebook.OpenFile(path, "")
	if err != nil {
		return cell, err
	}
	got, err := cells.List(ctx, cells.File{File: file, ByIndex: true}, cells.ListArgs{Cell: name}, nil)
	if err != nil {
		return cell, err
	}
	one := got.Cells[0]
	return notebook.Cell{Handle: one.ID, Type: notebook.CellType(one.Type), Source: one.Source}, nil
}
