package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
)

var update = flag.Bool("update", false, "write docs/commands.md")

const document = "../docs/commands.md"

// TestCommandsDocument holds docs/commands.md against the commands.
func TestCommandsDocument(t *testing.T) {
	want := commandsDocument(rootCommand(configtest.Environ(), terminal.Streams{}))
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/commands.md differs from the commands: run `go test ./relay -run TestCommandsDocument -update`")
	}
}

// allCommands returns the commands below another one, each before those below it.
func allCommands(parent *cobra.Command) (all []*cobra.Command) {
	for _, cmd := range parent.Commands() {
		all = append(append(all, cmd), allCommands(cmd)...)
	}
	return all
}

// title is a command's name after that of the program.
func title(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// commandsDocument describes all commands in Markdown.
func commandsDocument(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# The command line\n\n<!-- Written by `go test ./relay -run TestCommandsDocument -update`; do not edit. -->\n\n" + paragraphs(root.Long))
	b.WriteString("\n`colab-relay COMMAND --help` shows the same in a terminal. `--json` prints one JSON document on stdout; notes and errors go to stderr.\n")
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| | |\n|---|---|\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				for _, each := range append([]*cobra.Command{cmd}, allCommands(cmd)...) {
					fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", title(each), strings.ReplaceAll(title(each), " ", "-"), cell(each.Short))
				}
			}
		}
	}
	for _, cmd := range root.Commands() {
		switch {
		case !cmd.Runnable():
			fmt.Fprintf(&b, "\n## %s\n\n%s", cmd.Short, paragraphs(cmd.Long))
		case cmd.GroupID != "":
			for _, each := range append([]*cobra.Command{cmd}, allCommands(cmd)...) {
				describeCommand(&b, each)
			}
		}
	}
	return b.String()
}

func describeCommand(b *strings.Builder, cmd *cobra.Command) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n### %s\n\n%s\nUsage: `%s`\n", title(cmd), paragraphs(text), cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindent(cmd.Example))
	}
	var flags strings.Builder
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		fmt.Fprintf(&flags, "| `%s` | %s |\n", name, cell(usage))
	})
	if flags.Len() > 0 {
		fmt.Fprintf(b, "\n| flag | |\n|---|---|\n%s", flags.String())
	}
}

// paragraphs turns a help text into Markdown: indented lines are code.
func paragraphs(text string) string {
	var b strings.Builder
	code := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !code:
			b.WriteString("```\n")
		case !indented && code:
			b.WriteString("```\n\n")
		}
		if code = indented; code {
			b.WriteString(line[2:] + "\n")
		} else if line != "" {
			b.WriteString(line + "\n\n")
		}
	}
	if code {
		b.WriteString("```\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func unindent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}

// cell is a text in a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
