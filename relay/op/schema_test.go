package op

import (
	"bytes"
	"encoding/json"
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/toolsets"
)

var update = flag.Bool("update", false, "write README's table")

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
		if !tools.MatchString(tool.def.Name) || s.Properties == nil {
			t.Errorf("%q has the properties %v", tool.def.Name, s.Properties)
		}
		for name, p := range s.Properties {
			if !arguments.MatchString(name) || name == "runtime" || p.Nullable == slices.Contains(s.Required, name) {
				t.Errorf("%s: %q: %+v, required %v", tool.def.Name, name, p, s.Required)
			}
		}
	}
}

// TestTheGuideNamesToolsThatExist: it is the server's instructions, which hosts cut at 2 KB.
func TestTheGuideNamesToolsThatExist(t *testing.T) {
	for _, served := range [][]toolsets.Toolset{nil, {toolsets.Core}, {toolsets.Core, toolsets.Notebook}, {toolsets.Core, toolsets.Data}, {toolsets.Core, toolsets.Page}, {toolsets.Core, toolsets.Notebook, toolsets.Page}, toolsets.All} {
		guide := Guide(served)
		if len(guide) >= 2000 {
			t.Errorf("the guide of %s has %d bytes", served, len(guide))
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
