package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// commandName is the name of this program in all texts. The name relay is common: other
// packages install a command of that name.
const commandName = "colab-relay"

// calledAs returns the name by which a person called this program.
func calledAs(path string) string {
	return strings.TrimSuffix(filepath.Base(path), ".exe")
}

// showName makes the help texts of cmd and its subcommands show the name by which the
// program was called.
func showName(cmd *cobra.Command, name string) {
	for _, text := range []*string{&cmd.Use, &cmd.Long, &cmd.Example} {
		*text = replaceName(*text, name)
	}
	for _, sub := range cmd.Commands() {
		showName(sub, name)
	}
}

func replaceName(text, name string) string {
	lines := strings.Split(strings.ReplaceAll(text, "`"+commandName, "`"+name), "\n")
	for i, line := range lines { // an example has a command in each line
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if rest, is := strings.CutPrefix(line[len(indent):], commandName); is {
			lines[i] = indent + name + rest
		}
	}
	return strings.Join(lines, "\n")
}
