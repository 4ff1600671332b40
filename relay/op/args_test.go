package op

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/contract"
)

// Some frameworks send null for every argument that a model omits.
func TestNullIsAnOmittedArgument(t *testing.T) {
	h := startHost(t, Config{Toolsets: toolsets.All, Resolve: func(string) (runtimes.Runtime, error) { return runtimes.Runtime{}, errors.New("none") }})
	for _, tool := range served(toolsets.All) {
		if calls[tool.tool].args == "" {
			t.Fatalf("calls, in errors_test.go, has no call of %s", tool.tool)
		}
		args := decode[map[string]any](t, json.RawMessage(calls[tool.tool].args))
		omitted := h.call(tool.tool, args)
		for name := range decode[struct{ Properties object }](t, inputSchema(tool.inputs)).Properties {
			if _, given := args[name]; !given {
				args[name] = nil
			}
		}
		if got := h.call(tool.tool, args); string(got.Structured) != string(omitted.Structured) {
			t.Errorf("%s %v: %s, want %s", tool.tool, args, got.Structured, omitted.Structured)
		}
	}
}

// An argument called runtime does not pass LangChain's adapter.
func TestTheEarlierNameOfAnArgumentIsAccepted(t *testing.T) {
	h, hung, _ := twoRuntimes(t)
	hung.run("e1").end(contract.StatusSucceeded)
	for name, warning := range map[string]string{"runtime_name": "", "runtimeName": "", "runtime": `The argument "runtime" is called "runtime_name".`} {
		if o := h.call("run_code_quick", map[string]any{"code": "x", name: "hung"}).outcome(t); o.Runtime != "hung" || o.Warning != warning {
			t.Errorf("%s: %+v", name, o)
		}
	}
	both := h.call("run_code_quick", map[string]any{"code": "x", "runtime": "hung", "runtime_name": "honest"}).outcome(t)
	if both.Error == nil || both.Error.Code != codeBadRequest {
		t.Errorf("%+v", both)
	}
}

// Gemini CLI adds wait_for_previous to the arguments of every tool, and models write numbers and
// truth values as strings.
func TestArgumentsThatHostsAndModelsWriteOtherwiseAreAccepted(t *testing.T) {
	onOwnClock(t, 0, func(t *testing.T, h *host, f *fakeExecutor) {
		run := f.run("e1")
		run.end(contract.StatusSucceeded)
		got := h.call("run_code_long", map[string]any{"code": "x", "timeout_seconds": "30", "wait_for_previous": true, "b": 1})
		if o := got.outcome(t); !o.Success || o.Warning != `Ignored arguments that this tool does not have: "b", "wait_for_previous".` {
			t.Errorf("%+v", o)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(run.submits) != 1 || run.submits[0].TimeoutSeconds != 30 {
			t.Errorf("submitted %+v", run.submits)
		}
	})
	type args struct {
		Text  string  `json:"text" default:""`
		Whole int64   `json:"whole" default:"7"`
		Real  float64 `json:"real" default:"0.5"`
		Yes   bool    `json:"yes" default:"false"`
		target
	}
	for raw, want := range map[string]args{
		`{"whole":"3","real":"2.5","yes":"true"}`: {Whole: 3, Real: 2.5, Yes: true},
		`{"whole":"","real":"","yes":""}`:         {Whole: 7, Real: 0.5},
		`{"text":4}`:                              {Text: "4", Whole: 7, Real: 0.5},
	} {
		if got, p := parsed[args](raw); p != nil || got != want {
			t.Errorf("%s: %+v %v", raw, got, p)
		}
	}
	for raw, want := range map[string]string{
		`{"whole":"3.5"}`: `"whole" must be a whole number`,
		`{"real":"NaN"}`:  `"real" must be a number`,
		`{"yes":"yes"}`:   `"yes" must be true or false`,
		`{"text":[1]}`:    `"text" must be a string`,
	} {
		if _, p := parsed[args](raw); p == nil || !strings.Contains(p.Message, want) {
			t.Errorf("%s: %v, want %q", raw, p, want)
		}
	}
}

func TestEveryToolReportsAHostWhatItNeeds(t *testing.T) {
	for _, d := range New(Config{Toolsets: toolsets.All}).Definitions() {
		if d.Title == "" || d.Description == "" || len(d.Description) >= 1000 {
			t.Errorf("%s: title %q, description of %d bytes", d.Name, d.Title, len(d.Description))
		}
		var top object
		if err := json.Unmarshal(d.InputSchema, &top); err != nil || top["type"] != "object" {
			t.Errorf("%s: schema %v %v", d.Name, top["type"], err)
		}
		for _, word := range []string{"anyOf", "oneOf", "allOf", "$ref"} {
			if bytes.Contains(d.InputSchema, []byte(`"`+word+`"`)) {
				t.Errorf("%s: the schema uses %s", d.Name, word)
			}
		}
	}
}

// A dot or slash in a name reaches models, an argument called runtime does not pass LangChain,
// mcpadapt loads no tool of a server with a schema without properties, and smolagents demands each
// argument that is not nullable. Colab's own names have capitals.
func TestSchemasSuitAgentFrameworks(t *testing.T) {
	tools, arguments := regexp.MustCompile(`^[a-z0-9_]+$`), regexp.MustCompile(`^[a-z0-9_]+$|^cellI(d|ndex|ndexStart)$|^afterCellId$|^includeOutputs$`)
	for _, tool := range served(toolsets.All) {
		s := decode[struct {
			Properties map[string]struct{ Nullable bool }
			Required   []string
		}](t, inputSchema(tool.inputs))
		if !tools.MatchString(tool.tool) || s.Properties == nil {
			t.Errorf("%q has the properties %v", tool.tool, s.Properties)
		}
		for name, p := range s.Properties {
			if !arguments.MatchString(name) || name == "runtime" || p.Nullable == slices.Contains(s.Required, name) {
				t.Errorf("%s: %q: %+v, required %v", tool.tool, name, p, s.Required)
			}
		}
	}
}

// TestTheGuideNamesToolsThatExist: it is the server's instructions, which hosts cut at 2 KB.
func TestTheGuideNamesToolsThatExist(t *testing.T) {
	for _, served := range [][]toolsets.Toolset{nil, {toolsets.Core}, {toolsets.Core, toolsets.Notebook}, {toolsets.Core, toolsets.Data}, {toolsets.Core, toolsets.Page}, {toolsets.Core, toolsets.Notebook, toolsets.Page}, toolsets.All} {
		guide := Guide(served)
		if len(guide) >= 2000 {
			t.Errorf("the guide of %s has %d bytes, and must have less than 2,000", served, len(guide))
		}
		known := map[string]bool{ // words with an underscore that are not tools
			"notebook_path": true,
			"wait_seconds":  true, "next_command": true, "waiting_for_input": true, "can_continue": true,
		}
		for _, set := range sets {
			on := set.name == toolsets.Core || slices.Contains(served, set.name)
			if named := strings.Contains(guide, string(set.name)+" ("); named == on {
				t.Errorf("the guide of %s names %s as off: %t", served, set.name, named)
			}
		}
		for _, r := range operations {
			on := slices.ContainsFunc(r.sets, func(s toolsets.Toolset) bool { return s == toolsets.Core || slices.Contains(served, s) })
			known[r.tool] = on
			if on && !strings.Contains(guide, r.tool) {
				t.Errorf("the guide of %s does not mention %s", served, r.tool)
			}
		}
		for _, word := range regexp.MustCompile(`[a-z]+(?:_[a-z]+)+`).FindAllString(guide, -1) {
			if !known[word] {
				t.Errorf("the guide of %s names %q, which is no tool of them", served, word)
			}
		}
	}
}
