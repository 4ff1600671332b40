package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
	"colabrelay/shared/tier"
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

// readmeScript runs the commands of README.md and docs/start.md. A comment "# $ LINE" precedes the lines that
// run the command LINE.
const readmeScript = "testdata/readme/readme.txtar"

// TestREADMECommandsRun checks that the script has every command of these two, and runs it.
// CI runs the make targets.
func TestREADMECommandsRun(t *testing.T) {
	tier.Long(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	start, err := os.ReadFile("../docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(readmeScript)
	if err != nil {
		t.Fatal(err)
	}
	var scripted []string
	for _, m := range regexp.MustCompile(`(?m)^# \$ (.+)$`).FindAllStringSubmatch(string(script), -1) {
		scripted = append(scripted, m[1])
	}
	for _, command := range readmeCommands(t, string(readme)+string(start)) {
		if !strings.HasPrefix(command, "make ") && !slices.Contains(scripted, command) {
			t.Errorf("%s does not run the documents' command %q", readmeScript, command)
		}
	}
	testscript.Run(t, scripts(t, "testdata/readme"))
}

// readmeCommands returns the lines of the fenced sh blocks, without their comments.
func readmeCommands(t *testing.T, text string) (commands []string) {
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, " #")
			if command = strings.TrimSpace(command); command != "" {
				commands = append(commands, command)
			}
		}
	}
	if len(commands) < 10 {
		t.Fatalf("the documents have only the commands %q", commands)
	}
	return commands
}

// People read the rules in docs/rules.md before they log in.
func TestTheDocumentOfRulesHasThoseOfVMs(t *testing.T) {
	rules, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(rules), vm.Rules) {
		t.Error("docs/rules.md does not contain the text of vm.Rules")
	}
}

// The table of tools names commands that there are.
func TestTheDocumentOfToolsPairsThemWithCommands(t *testing.T) {
	tools, err := os.ReadFile("../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, cmd := range allCommands(rootCommand(configtest.Environ(), terminal.Streams{})) {
		names = append(names, title(cmd))
	}
	rows := regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| `([a-z ]+)` \\|").FindAllStringSubmatch(string(tools), -1)
	for _, row := range rows {
		if !slices.Contains(names, row[1]) {
			t.Errorf("docs/tools.md pairs a tool with %q, which is no command", row[1])
		}
	}
	if len(rows) < 20 {
		t.Errorf("docs/tools.md pairs only %d tools with commands", len(rows))
	}
}
