package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
	"colabrelay/relay/vm"
	"colabrelay/shared/tier"
)

// readmeScript runs the commands of README.md. A comment "# $ LINE" precedes the lines that
// run the command LINE.
const readmeScript = "testdata/readme/readme.txtar"

// TestREADMECommandsRun checks that the script has every command of README.md, and runs it.
// CI runs the make targets.
func TestREADMECommandsRun(t *testing.T) {
	tier.Long(t)
	readme, err := os.ReadFile("../README.md")
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
	for _, command := range readmeCommands(t, string(readme)) {
		if !strings.HasPrefix(command, "make ") && !slices.Contains(scripted, command) {
			t.Errorf("%s does not run the README's command %q", readmeScript, command)
		}
	}
	testscript.Run(t, scripts(t, "testdata/readme"))
}

// readmeCommands returns the lines of the fenced sh blocks, without their comments.
func readmeCommands(t *testing.T, readme string) (commands []string) {
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readme, -1) {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, " #")
			if command = strings.TrimSpace(command); command != "" {
				commands = append(commands, command)
			}
		}
	}
	if len(commands) < 10 {
		t.Fatalf("the README has only the commands %q", commands)
	}
	return commands
}

// People read the rules in README.md before they log in.
func TestREADMEHasTheRulesOfVMs(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), vm.Rules) {
		t.Error("README.md does not contain the text of vm.Rules: copy it from relay/vm/rules.go")
	}
}

// The table of tools names commands that there are.
func TestREADMEPairsToolsWithCommands(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, cmd := range allCommands(rootCommand(configtest.Environ(), terminal.Streams{})) {
		names = append(names, title(cmd))
	}
	rows := regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| `([a-z ]+)` \\|").FindAllStringSubmatch(string(readme), -1)
	for _, row := range rows {
		if !slices.Contains(names, row[1]) {
			t.Errorf("README.md pairs a tool with %q, which is no command", row[1])
		}
	}
	if len(rows) < 20 {
		t.Errorf("README.md pairs only %d tools with commands", len(rows))
	}
}
