package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/stacks"
)

// frameworks are hosts, too: for each, the lines in docs/frameworks.md start an agent with the
// relay's entry, and the agent follows the script. Each has an executor of its own, whose runs are
// counted.
var frameworks = []host{
	{name: "langchain", title: "LangChain"},
	{name: "pydantic-ai", title: "Pydantic AI", errorsAs: inJSON},
	{name: "openai-agents", title: "OpenAI Agents", limit: ", client_session_timeout_seconds=60"},
	{name: "smolagents", title: "smolagents", pictures: dropped},
	{name: "google-adk", title: "Google ADK", pictures: kept, textsAs: inJSON, errorsAs: inJSON, limit: ", timeout=60"},
	{name: "strands", title: "Strands"},
	{name: "agno", title: "Agno", errorsAs: inRepr, limit: ", timeout_seconds=60"},
	{name: "crewai", title: "CrewAI", pictures: keptOnRequest},
	{name: "llama-index", title: "LlamaIndex", pictures: keptOnRequest, textsAs: inRepr, errorsAs: inRepr, limit: ", timeout=60"},
	{name: "autogen", title: "AutoGen", pictures: keptOnRequest},
	{name: "haystack", title: "Haystack", pictures: keptOnRequest, textsAs: inJSON, errorsAs: inJSON, limit: ", invocation_timeout=60"},
	{name: "mcp-use", title: "mcp-use", errorsAs: inJSON, errorTimes: 3},
	{name: "ai-sdk", title: "AI SDK", program: "node/ai-sdk.mjs", pictures: kept, textsAs: inJSON, errorsAs: inJSON},
	{name: "mastra", title: "Mastra", program: "node/mastra.mjs", pictures: keptOnRequest, textsAs: inJSON, errorsAs: inJSON},
}

// fate is what becomes of a picture.
type fate int

const (
	shown         fate = iota // the model gets it
	dropped                   // the framework drops it
	kept                      // the relay keeps it back, because the framework makes a text of it
	keptOnRequest             // the same, but the relay can't know, so that RELAY_PICTURES asks for it
)

// runtimeArgument names the runtime in a call.
const runtimeArgument = "runtime_name"

// second is the name of a runtime that all frameworks share, and of its executor's folder.
const second = "second"

// longCode is a run of 20 s. Its first line marks it in lists of runs, its last one prints
// longEnd, which no error message can quote.
const (
	longMark = "import time  # 20 s"
	longCode = longMark + "\ntime.sleep(20)\nprint('the run', 'has ended')"
	longEnd  = "the run has ended"
)

var frameworkTrials = append(trials[:3:3],
	trial{
		name: "the second runtime is told apart", says: []string{"in vm-" + second},
		step: step{Tool: "run_code_quick", Args: map[string]any{"code": "import os\nprint('in', os.path.basename(os.getcwd()))", runtimeArgument: second}},
	},
	trial{name: "a run of 20 s is made once", step: step{Tool: "run_code_long", Args: map[string]any{"code": longCode}, Until: longEnd}},
)

// trials returns the checks of a host.
func (h host) trials() []trial {
	if h.configure != nil {
		return trials
	}
	all := append([]trial{}, frameworkTrials...)
	plot := &all[1]
	plot.says = []string{".png"}
	switch h.pictures {
	case dropped:
		plot.pictures, plot.lost = 0, 1
	case kept, keptOnRequest:
		plot.pictures = 0
	}
	return all
}

// lines returns the document's lines for the framework, with the default limit of a call.
func (h host) lines() (string, error) {
	text, err := os.ReadFile(filepath.Join(stacks.Root(), "docs", "frameworks.md"))
	if err != nil {
		return "", err
	}
	_, part, _ := strings.Cut(string(text), "\n### "+h.title+"\n")
	_, block, _ := strings.Cut(part, "\n```")
	_, block, _ = strings.Cut(block, "\n") // the language
	block, _, isWhole := strings.Cut(block, "```")
	if !isWhole || !strings.Contains(block, h.limit) {
		return "", fmt.Errorf("docs/frameworks.md has no lines for %s with %q", h.title, h.limit)
	}
	return strings.Replace(block, h.limit, "", 1), nil
}

//go:embed frameworks/versions.txt
var versions string

// pinned returns the framework's name and version.
func (h host) pinned() (string, error) {
	version := regexp.MustCompile(`(?m)^` + h.name + ` \w+ \S+?(?:==|\w@)([\d.]+)`).FindStringSubmatch(versions)
	if version == nil {
		return "", fmt.Errorf("frameworks/versions.txt lacks %s", h.name)
	}
	return h.title + " " + version[1], nil
}

// drive writes the driver, which is the document's lines, and returns its arguments and variables.
// Telemetry is off.
func (h host) drive(s setting) (args, env []string, err error) {
	lines, err := h.lines()
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(s.home, "driver.py")
	switch {
	case strings.HasSuffix(s.program, ".mjs"): // node finds the packages from there
		file, lines = s.program, "const entry = JSON.parse(process.env.ENTRY);\n"+lines
	case strings.Contains(lines, "await "):
		lines = strings.ReplaceAll("async def main():\n"+lines, "\n", "\n    ") + "\nasyncio.run(main())\n"
		fallthrough
	default:
		args, lines = []string{file}, "import asyncio, json, os\nentry = json.loads(os.environ['ENTRY'])\n"+lines
	}
	relay := maps.Clone(s.relay)
	if h.pictures == keptOnRequest {
		relay["RELAY_PICTURES"] = "path"
	}
	entry := map[string]any{"command": s.server[0], "args": s.server[1:], "env": relay}
	return args, []string{
		"ENTRY=" + string(marshal(entry)),
		"OPENAI_API_KEY=none", "OPENAI_BASE_URL=" + s.model + "/v1", "OPENAI_API_BASE=" + s.model + "/v1",
		"GOOGLE_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + s.model,
		"OPENAI_AGENTS_DISABLE_TRACING=1", "OTEL_SDK_DISABLED=true", "CREWAI_DISABLE_TELEMETRY=true", "CREWAI_TRACING_ENABLED=false", "AGNO_TELEMETRY=false",
		"HAYSTACK_TELEMETRY_ENABLED=False", "MCP_USE_ANONYMIZED_TELEMETRY=false", "MASTRA_TELEMETRY_DISABLED=1", "LANGSMITH_TRACING=false",
	}, writeFile(file, []byte(lines))
}

// agents runs the frameworks, three at a time, because they mostly wait.
func (l *lab) agents(ctx context.Context, only string) (err error) {
	other, stop, err := l.vm(ctx, second)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var all sync.WaitGroup
	places := make(chan struct{}, 3)
	for _, h := range frameworks {
		if only != "" && only != h.name {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if ctx.Err() == nil {
				l.report.must(l.agent(ctx, h, other))
			}
		})
	}
	all.Wait()
	return nil
}

// agent runs one framework, whose relay has its executor in COLAB_URL and the other one paired.
func (l *lab) agent(ctx context.Context, h host, other map[string]string) (err error) {
	title, err := h.pinned()
	if err != nil {
		return err
	}
	relay, stop, err := l.vm(ctx, h.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	secret, err := auth.NewSecret(other["COLAB_SECRET"])
	if err != nil {
		return err
	}
	store := pairing.Open(filepath.Join(relay["HOME"], ".config", "colab-relay"))
	if _, err := store.Put(pairing.Runtime{Name: second, URL: other["COLAB_URL"], Secret: secret}); err != nil {
		return err
	}
	// The first plot makes a cache of fonts, which takes longer than some frameworks wait.
	if _, err := l.command(ctx, relay, "run", "-c", plot); err != nil {
		return err
	}
	l.talk(ctx, h, title, relay)
	return nil
}

// command runs a command of the relay and returns what it printed.
func (l *lab) command(ctx context.Context, relay map[string]string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, l.binaries.Relay, args...)
	for name, value := range relay {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Dir = relay["HOME"]
	printed, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("colab-relay %s: %w: %s", args[0], err, exit.Stderr)
	}
	return printed, err
}

// isMadeOnce checks that however often the model made the call of the long run, the executor has
// one, which the last answer tells of.
func (l *lab) isMadeOnce(ctx context.Context, relay map[string]string, last exchange, calls int) error {
	printed, err := l.command(ctx, relay, "ps", "--all", "--json")
	if err != nil {
		return err
	}
	var list struct {
		Executions []struct {
			ID   string `json:"execution_id"`
			Code string `json:"code_preview"`
		}
	}
	if err := json.Unmarshal(printed, &list); err != nil {
		return err
	}
	var runs []string
	for _, e := range list.Executions {
		if e.Code == longMark {
			runs = append(runs, e.ID)
		}
	}
	text := strings.Join(last.Texts, "\n")
	switch {
	case len(runs) != 1:
		return fmt.Errorf("%d calls left %d runs; the model got %s", calls, len(runs), short(text))
	case !strings.Contains(text, longEnd) && !strings.Contains(text, runs[0]):
		return fmt.Errorf("after %d calls, the model knows neither the run's end nor its id: %s", calls, short(text))
	}
	return nil
}

// inRepr is a text as Python's repr of a list shows it.
func inRepr(text string) string {
	quoted := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`).Replace(text)
	if strings.Contains(text, "'") && strings.Contains(text, `"`) {
		quoted = strings.ReplaceAll(quoted, "'", `\'`)
	}
	return quoted
}
