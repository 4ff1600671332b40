package main

import (
	"errors"
	"fmt"
	"io"

	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
)

// welcome tells a person who started the program without a command what it is and what to
// do next. name is the name by which the program was called.
func welcome(name string, set *config.Settings, std terminal.Streams) error {
	store, err := pairing.OpenDefault()
	if err != nil {
		return err
	}
	fmt.Fprintf(std.Out, "%s runs Python on a Google Colab VM, or on any other machine, from this computer.\n\n", name)
	r, err := pairing.Resolve("", set.Get, store)
	switch {
	case err == nil:
		fmt.Fprintf(std.Out, "The default runtime is %q, %s.\n\n", r.Name, plain.Line(r.URL))
		printSteps(std.Out, [][2]string{
			{name + " status", "does the VM answer?"},
			{name + " run -c 'print(6 * 7)'", "run code; a FILE works too"},
			{name + " get REMOTE", "download a result"},
			{name + " install HOST", "let an AI agent use the VM"},
		})
	case errors.Is(err, pairing.ErrNotPaired):
		fmt.Fprintln(std.Out, "This computer is not paired with a VM yet. Three steps:")
		printSteps(std.Out, [][2]string{
			{name + " bootstrap", "1. print the cell to run in Colab"},
			{name + " pair", "2. paste the line that the cell prints"},
			{name + " install HOST", "3. let an AI agent use the VM"},
		})
	default:
		fmt.Fprintf(std.Out, "%s\n\n", plain.Line(err.Error()))
		printSteps(std.Out, [][2]string{
			{name + " runtimes", "list the paired runtimes"},
			{name + " doctor", "find out what is wrong"},
		})
	}
	_, err = fmt.Fprintf(std.Out, "\n`%s --help` lists all commands. MCP hosts start `%s serve`.\n", name, name)
	return err
}

func printSteps(out io.Writer, steps [][2]string) {
	for _, s := range steps {
		fmt.Fprintf(out, "  %-36s %s\n", s[0], s[1])
	}
}
