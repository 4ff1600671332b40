package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

func varsCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	var (
		runtime string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "vars [NAME]",
		Short: "List the variables in the VM's kernel, or show one",
		Long: "List the variables in the VM's kernel, or show the type, shape and beginning of one. None of their code is run, so this is safe for any object.\n" +
			"It fails with kernel_busy while a run occupies the kernel.",
		Example: "  colab-relay vars\n  colab-relay vars df\n  colab-relay vars --json",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withVM(cmd.Context(), set, named(runtime), std, func(vm openVM) error {
				if len(args) > 0 {
					return showVariable(cmd.Context(), vm, args[0], asJSON, std)
				}
				return listVariables(cmd.Context(), vm, asJSON, std)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addRuntimeFlag(cmd, &runtime)
	addJSONFlag(cmd, &asJSON)
	return cmd
}

func listVariables(ctx context.Context, vm openVM, asJSON bool, std terminal.Streams) error {
	got, err := vm.Client.Variables(ctx)
	if err != nil {
		return err
	}
	missing := got.Count - len(got.Variables)
	if asJSON {
		return printJSON(std.Out, struct {
			Runtime string `json:"runtime"`
			contract.Variables
			Truncated bool `json:"truncated"`
		}{vm.Name, got, missing > 0})
	}
	if len(got.Variables) == 0 {
		fmt.Fprintln(std.Err, "the kernel has no variables")
		return nil
	}
	table := terminal.NewTable(terminal.Column{Title: "NAME"}, terminal.Column{Title: "TYPE"}, terminal.Column{Title: "SIZE", Right: true}, terminal.Column{Title: "SHAPE"})
	for _, v := range got.Variables {
		table.Add(v.Name, typeOf(v), sizeOf(v), shapeOf(v))
	}
	if err := table.Print(std.Out); err != nil || missing == 0 {
		return err
	}
	_, err = fmt.Fprintf(std.Err, "note: %s not listed; `colab-relay vars NAME` shows any of them\n", plain.Count(missing, "more variable"))
	return err
}

func showVariable(ctx context.Context, vm openVM, name string, asJSON bool, std terminal.Streams) error {
	got, err := vm.Client.Inspect(ctx, name)
	if refused, ok := errors.AsType[*contract.Error](err); ok && refused.Code == contract.CodeNotFound {
		return fmt.Errorf("the kernel has no variable %q; `colab-relay vars` lists those it has", name)
	}
	if err != nil {
		return fmt.Errorf("variable %q: %w", name, err)
	}
	if asJSON {
		return printJSON(std.Out, struct {
			Runtime string `json:"runtime"`
			contract.Inspection
		}{vm.Name, got})
	}
	parts := []string{got.Name + ": " + typeOf(got.Variable)}
	for _, text := range []string{shapeOf(got.Variable), sizeOf(got.Variable)} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	_, err = fmt.Fprintf(std.Out, "%s\n%s\n", plain.Line(strings.Join(parts, ", ")), plain.Text(strings.TrimRight(got.Preview, "\n")))
	return err
}

// typeOf is a variable's type, with that of its items.
func typeOf(v contract.Variable) string {
	if v.Dtype == nil {
		return v.Type
	}
	return v.Type + " of " + *v.Dtype
}

// sizeOf is the memory that a variable itself takes.
func sizeOf(v contract.Variable) string {
	if v.Bytes == nil {
		return ""
	}
	return progress.Bytes(*v.Bytes)
}

// shapeOf is the shape of an array, or else the number of items.
func shapeOf(v contract.Variable) string {
	switch {
	case len(v.Shape) > 0:
		var dims []string
		for _, n := range v.Shape {
			dims = append(dims, strconv.FormatInt(n, 10))
		}
		return strings.Join(dims, " x ")
	case v.Size != nil:
		return plain.Count(*v.Size, "item")
	}
	return ""
}
