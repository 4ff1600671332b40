package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/cli"
	"colabrelay/relay/cli/setup"
	"colabrelay/relay/config"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
)

// setupStep is a step of the set-up. All texts for people tell the steps in this order.
type setupStep struct {
	name string
	fact *regexp.Regexp // names what to do, in whatever words
}

var (
	stepInstall = setupStep{"install the relay", regexp.MustCompile(`(?i)\binstall(s)? the relay\b|The relay is installed`)}
	stepHost    = setupStep{"add it to the MCP host", regexp.MustCompile(`install (HOST|claude-desktop)\b|adds it to the host|adds it to Claude Code|added to your MCP host`)}
	stepStart   = setupStep{"start the executor", regexp.MustCompile(`(?i)\bstart the executor\b|relay bootstrap`)}
	stepPair    = setupStep{"pair", regexp.MustCompile(`relay pair\b|Pairing string\*\* in this extension's settings`)}
	stepCheck   = setupStep{"check", regexp.MustCompile(`(?i)ask the agent\*{0,2} (in your MCP host )?to check the Colab connection|relay status`)}

	allSteps = []setupStep{stepInstall, stepHost, stepStart, stepPair, stepCheck}
)

// section returns what follows a text of a file, up to another text.
func section(t *testing.T, file, from, to string) string {
	t.Helper()
	b, err := os.ReadFile("../" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(b), from)
	text, _, ended := strings.Cut(text, to)
	if !found || to != "" && !ended {
		t.Fatalf("%s has no part from %q to %q", file, from, to)
	}
	if to == "" {
		_, text, _ = strings.Cut(string(b), from)
	}
	return text
}

// A newcomer reads the same steps in the same order everywhere.
func TestEveryTextTellsTheSetUpInOneOrder(t *testing.T) {
	packaging := "config/packaging/"
	notebook, err := bootstrap.Notebook(bootstrap.Release{Releases: "https://example.com/r", Version: "v1", SHA256AMD64: strings.Repeat("a", 64), SHA256ARM64: strings.Repeat("b", 64)})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"README.md":                 section(t, "README.md", "## Start in five minutes", "**Pair only once.**"),
		"docs/install.md":           section(t, "docs/install.md", "first of five steps", "Each way below"),
		"colab-bootstrap/README.md": "Install the relay." + section(t, "colab-bootstrap/README.md", "## Colab", "The form above"), // it refers to README.md
		"intro.md":                  section(t, "colab-bootstrap/intro.md", "## What to do", "Keep this tab open"),
		"the release's notebook":    string(notebook[bytes.Index(notebook, []byte("## What to do")):]),
		"the relay's README.txt":    section(t, packaging+"archive/relay.txt", "needs nothing else.", ""),
		"the executor's README.txt": section(t, packaging+"archive/executor.txt", "Elsewhere", ""),
		"the .mcpb":                 section(t, packaging+"mcpb/manifest.json", `"long_description"`, `"author"`),
		"the plugin":                section(t, packaging+"plugin/README.md", "#", ""),
		"the npm package":           section(t, packaging+"npm/README.md", "#", ""),
		"the wheel":                 section(t, packaging+"wheel/relay-METADATA", "Name:", ""),
		"the start screen":          startScreen(t, "https://example.com/r"),
		"without a release":         startScreen(t, ""),
	} {
		t.Run(name, func(t *testing.T) { checkSteps(t, strings.ReplaceAll(text, "@START@", ""), allSteps) })
	}
	t.Run("doctor", func(t *testing.T) { // it runs where the relay is installed, and checks in this order
		checkSteps(t, printedAfresh(t, 1, "doctor"), []setupStep{stepHost, stepStart, stepPair})
	})
}

// checkSteps fails unless the first place of each step follows that of the one before it.
func checkSteps(t *testing.T, text string, steps []setupStep) {
	t.Helper()
	before := -1
	for _, step := range steps {
		at := step.fact.FindStringIndex(text)
		if at == nil {
			t.Errorf("the step %q is missing in\n%s", step.name, text)
			return
		}
		if at[0] <= before {
			t.Errorf("the step %q comes too early in\n%s", step.name, text)
		}
		before = at[0]
	}
}

// printedAfresh returns what the relay prints on a computer on which nothing is set up.
func printedAfresh(t *testing.T, code int, args ...string) string {
	t.Helper()
	configtest.Home(t)
	var out bytes.Buffer
	if got := run(t.Context(), append([]string{"colab-relay"}, args...), configtest.Environ(), terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); got != code {
		t.Fatalf("exit code %d, %s", got, out.String())
	}
	return out.String()
}

// startScreen returns what the program says alone on a terminal, in a build that knows this
// address of releases.
func startScreen(t *testing.T, address string) string {
	t.Helper()
	configtest.Home(t)
	before := cli.Releases
	defer func() { cli.Releases = before }()
	cli.Releases = address
	var out bytes.Buffer
	if err := setup.Welcome("colab-relay", &config.Settings{Getenv: configtest.Environ()}, terminal.Streams{Out: &out}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A user of the .mcpb has the extension's settings and no command.
func TestTheBundleNamesItsFieldAndNoCommand(t *testing.T) {
	for _, part := range [][2]string{{`"long_description"`, `"author"`}, {`"user_config"`, "\n}"}} {
		if text := section(t, "config/packaging/mcpb/manifest.json", part[0], part[1]); regexp.MustCompile("`|colab-relay (pair|init|install|doctor|status)|terminal").MatchString(text) {
			t.Errorf("it names a command:\n%s", text)
		}
	}
	title := regexp.MustCompile(`"pairing": \{\s*"type": "string",\s*"title": "([^"]+)"`).FindStringSubmatch(section(t, "config/packaging/mcpb/manifest.json", "", ""))
	if title == nil {
		t.Fatal("the manifest has no field for the pairing string")
	}
	for _, file := range []string{"config/packaging/mcpb/manifest.json", "README.md", "docs/install.md", "colab-bootstrap/README.md", "colab-bootstrap/intro.md"} {
		text := section(t, file, "", "")
		if !strings.Contains(text, "*"+title[1]+"* in the extension's settings") && !strings.Contains(text, "**"+title[1]+"** in this extension's settings") {
			t.Errorf("%s does not name the field %q", file, title[1])
		}
	}
	if want := `"RELAY_PAIRING_FIELD": "` + title[1] + `"`; !strings.Contains(section(t, "config/packaging/mcpb/manifest.json", "", ""), want) {
		t.Errorf("the manifest lacks %s, so hints name a command", want)
	}
}
