package tools

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"colabrelay/relay/toolsets"
)

var update = flag.Bool("update", false, "write the golden files")

func TestToolSchemasAreAsInTheGoldenFiles(t *testing.T) {
	seen := map[string]bool{}
	for _, tool := range toolsOf(sets) {
		b, err := json.MarshalIndent(tool.listed(true), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, '\n')
		path := filepath.Join("testdata", tool.def.Name+".json")
		seen[filepath.Base(path)] = true
		if *update {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s is not as in %s (go test ./relay/tools -update writes it): %v", tool.def.Name, path, err)
		}
	}
	files, _ := filepath.Glob("testdata/*.json")
	for _, f := range files {
		if !seen[filepath.Base(f)] {
			t.Errorf("%s belongs to no tool", f)
		}
	}
}

// TestArgumentsAreThoseOfTheBridge holds names and defaults agents have learned.
func TestArgumentsAreThoseOfTheBridge(t *testing.T) {
	want := map[string]string{
		"check_colab_connection":        `{}`,
		"probe_colab_environment":       `{}`,
		"run_code_quick":                `{"code":null}`,
		"run_code_long":                 `{"code":null,"checkpoint_name":"","timeout_seconds":600}`,
		"run_chunked_operation":         `{"setup_code":"","loop_code":"","n_iterations":0,"batch_size":0,"checkpoint_name":"chunked_op","on_change":"refuse","on_stop":"","independent":false}`,
		"get_checkpoint":                `{"checkpoint_name":"","operation":""}`,
		"list_colab_files":              `{"path":"/content"}`,
		"cleanup_colab":                 `{}`,
		"list_colab_variables":          `{}`,
		"get_execution":                 `{"execution_id":null,"offset":0,"wait_seconds":0}`,
		"list_executions":               `{"limit":20,"include_internal":false}`,
		"interrupt_execution":           `{"execution_id":null}`,
		"provide_input":                 `{"execution_id":null,"text":null}`,
		"restart_kernel":                `{}`,
		"inspect_variable":              `{"name":null}`,
		"download_from_colab":           `{"remote_path":null,"local_filename":"","overwrite":false}`,
		"upload_to_colab":               `{"local_path":null,"remote_path":"","overwrite":false}`,
		"save_kernel_state":             `{"name":null,"keep_versions":3}`,
		"restore_kernel_state":          `{"name":null,"version":""}`,
		"install_packages":              `{"packages":"","requirements_path":"","upgrade":false,"timeout_seconds":600}`,
		"open_colab_browser_connection": `{"notebook_url":"","start_executor":false,"status_cell":false}`,
		"start_colab_vm":                `{"accelerators":"","high_ram":false,"name":"vm"}`,
		"list_colab_vms":                `{}`,
		"stop_colab_vm":                 `{"id":null,"force":false}`,

		"preview_dataframe": `{"name":null,"rows":20,"offset":0,"columns":"","filter":"","sort_by":""}`,
		"query_dataframes":  `{"sql":null,"rows":20,"timeout_seconds":30}`,

		"get_cells":     `{"notebook_path":"","cellIndexStart":0,"limit":50,"cellId":"","includeOutputs":true,"query":""}`,
		"add_code_cell": `{"notebook_path":"","code":null,"cellIndex":-1,"afterCellId":"","dry_run":false,"expect_digest":""}`,
		"add_text_cell": `{"notebook_path":"","content":null,"cellIndex":-1,"afterCellId":"","dry_run":false,"expect_digest":""}`,
		"update_cell":   `{"notebook_path":"","cellId":null,"content":null,"find":"","cell_type":"","dry_run":false,"expect_digest":""}`,
		"delete_cell":   `{"notebook_path":"","cellId":null,"dry_run":false,"expect_digest":""}`,
		"move_cell":     `{"notebook_path":"","cellId":null,"cellIndex":null,"dry_run":false,"expect_digest":""}`,
		"run_code_cell": `{"notebook_path":"","cellId":null,"timeout_seconds":600}`,
		"run_notebook": `{"notebook_path":"","output_path":"","cells":"all","parameters":"","on_error":"stop",
			"restart":false,"cell_timeout_seconds":600,"retries":0,"on_new_kernel":"stop","dry_run":false}`,
	}
	for _, tool := range toolsOf(sets) {
		var schema struct {
			Properties map[string]struct {
				Type    string
				Default any
			}
			Required []string
		}
		if err := json.Unmarshal(tool.def.RawInputSchema, &schema); err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		for name, p := range schema.Properties {
			if usual, ok := map[string]any{"string": "", "boolean": false}[p.Type]; ok && p.Default == nil && !slices.Contains(schema.Required, name) {
				p.Default = usual // which the schema need not say
			}
			if name != "runtime" {
				got[name] = p.Default
			}
		}
		b, _ := json.Marshal(got)
		var a, c any
		json.Unmarshal(b, &a)
		json.Unmarshal([]byte(want[tool.def.Name]), &c)
		if x, y := mustJSON(a), mustJSON(c); x != y {
			t.Errorf("%s takes %s, not %s", tool.def.Name, x, y)
		}
		for _, r := range schema.Required {
			if schema.Properties[r].Default != nil {
				t.Errorf("%s: %s is required and has a default", tool.def.Name, r)
			}
		}
		delete(want, tool.def.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing tools: %v", want)
	}
}

func mustJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestEveryToolReportsAHostWhatItNeeds(t *testing.T) {
	for _, tool := range toolsOf(sets) {
		d, a := tool.def, tool.def.Annotations
		if a.Title == "" || d.Description == "" || len(d.Description) >= 1000 {
			t.Errorf("%s: title %q, description of %d bytes", d.Name, a.Title, len(d.Description))
		}
		// Without a hint, hosts assume the opposite of each of these values.
		if a.ReadOnlyHint != nil && !*a.ReadOnlyHint || a.DestructiveHint != nil && *a.DestructiveHint || a.IdempotentHint != nil && !*a.IdempotentHint || a.OpenWorldHint != nil && *a.OpenWorldHint {
			t.Errorf("%s says what hosts assume anyway: %+v", d.Name, a)
		}
		if a.ReadOnlyHint != nil && (a.DestructiveHint != nil || a.IdempotentHint != nil) {
			t.Errorf("%s: hints that mean nothing for a read-only tool: %+v", d.Name, a)
		}
		if d.RawOutputSchema != nil {
			t.Errorf("%s has an output schema, which makes hosts show the model JSON", d.Name)
		}
		for name, raw := range map[string]json.RawMessage{"input": d.RawInputSchema, "output": tool.listed(true).RawOutputSchema} {
			var top map[string]any
			if err := json.Unmarshal(raw, &top); err != nil || top["type"] != "object" {
				t.Errorf("%s: %s schema %v %v", d.Name, name, top["type"], err)
			}
			for _, word := range []string{"anyOf", "oneOf", "allOf", "$ref"} {
				if bytes.Contains(raw, []byte(`"`+word+`"`)) {
					t.Errorf("%s: %s schema uses %s", d.Name, name, word)
				}
			}
		}
	}
}

// TestTheToolListIsCheap bounds what every session pays for the tool list, as a host
// receives it, and what each further toolset adds.
func TestTheToolListIsCheap(t *testing.T) {
	core := listedTools(t)
	notebook := listedTools(t, toolsets.Notebook)
	if n := utf8.RuneCount(listedTools(t, toolsets.All...)); n >= 26_000 {
		t.Errorf("the tool list of all sets has %d characters", n)
	}
	for set, most := range map[toolsets.Toolset]int{toolsets.Core: 14_000, toolsets.Notebook: 8_000, toolsets.Page: 1_200, toolsets.Data: 1_900} {
		served, less := []toolsets.Toolset{set}, core
		switch set {
		case toolsets.Core:
			less = nil
		case toolsets.Page: // the tools that it shares count once
			served, less = []toolsets.Toolset{toolsets.Notebook, toolsets.Page}, notebook
		}
		list := listedTools(t, served...)
		n := utf8.RuneCount(list) - utf8.RuneCount(less)
		t.Logf("%s: %d characters", set, n)
		if n >= most {
			t.Errorf("the tool list of %s has %d characters", set, n)
		}
		for _, word := range []string{`"null"`, `"$ref"`, `"anyOf"`} {
			if bytes.Contains(list, []byte(word)) {
				t.Errorf("the tool list of %s contains %s", set, word)
			}
		}
	}
	for _, tool := range toolsOf(sets) {
		if bytes.Contains(tool.listed(true).RawOutputSchema, []byte(`"description"`)) {
			t.Errorf("%s: the output schema has descriptions", tool.def.Name)
		}
	}
}

// listedTools returns the list of tools that hosts get without any setting.
func listedTools(t *testing.T, sets ...toolsets.Toolset) json.RawMessage {
	t.Helper()
	return serveHost(t, New(Config{Toolsets: sets, Hold: time.Second})).list
}

// TestHintsForClaudeCode: three tools are loaded from the start, and their pages of output
// stay in the conversation.
func TestHintsForClaudeCode(t *testing.T) {
	upfront := map[string]bool{"run_code_quick": true, "run_code_long": true, "get_execution": true}
	for _, tool := range toolsOf(sets) {
		got, want := mustJSON(tool.def.Meta), "null"
		if upfront[tool.def.Name] {
			want = `{"anthropic/alwaysLoad":true,"anthropic/maxResultSizeChars":200000}`
		}
		if got != want {
			t.Errorf("%s: _meta %s, want %s", tool.def.Name, got, want)
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
			for _, tool := range set.tools() {
				known[tool.def.Name] = known[tool.def.Name] || on
				if on && !strings.Contains(guide, tool.def.Name) {
					t.Errorf("the guide of %s does not mention %s", served, tool.def.Name)
				}
			}
		}
		for _, word := range regexp.MustCompile(`[a-z]+(?:_[a-z]+)+`).FindAllString(guide, -1) {
			if !known[word] {
				t.Errorf("the guide of %s names %q, which is no tool of them", served, word)
			}
		}
	}
}
