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
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files")

func TestToolSchemasAreAsInTheGoldenFiles(t *testing.T) {
	seen := map[string]bool{}
	for _, tool := range toolsOf(sets) {
		b, err := json.MarshalIndent(tool.def, "", "  ")
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
		"run_chunked_operation":         `{"setup_code":null,"loop_code":null,"n_iterations":null,"batch_size":10,"checkpoint_name":"chunked_op","on_change":"refuse","on_new_kernel":""}`,
		"get_checkpoint":                `{"checkpoint_name":"","operation":""}`,
		"list_colab_files":              `{"path":"/content"}`,
		"cleanup_colab":                 `{}`,
		"list_colab_variables":          `{}`,
		"get_execution":                 `{"execution_id":null,"offset":0,"wait_seconds":0}`,
		"list_executions":               `{"limit":20}`,
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
		"add_code_cell": `{"notebook_path":"","code":null,"cellIndex":-1,"afterCellId":"","language":"python","dry_run":false,"expect_digest":""}`,
		"add_text_cell": `{"notebook_path":"","content":null,"cellIndex":-1,"afterCellId":"","dry_run":false,"expect_digest":""}`,
		"update_cell":   `{"notebook_path":"","cellId":null,"content":null,"find":"","cell_type":"","dry_run":false,"expect_digest":""}`,
		"delete_cell":   `{"notebook_path":"","cellId":null,"dry_run":false,"expect_digest":""}`,
		"move_cell":     `{"notebook_path":"","cellId":null,"cellIndex":null,"dry_run":false,"expect_digest":""}`,
		"run_code_cell": `{"notebook_path":"","cellId":null,"timeout_seconds":600}`,
		"run_notebook": `{"notebook_path":"","output_path":"","cells":"all","parameters":"","on_error":"skip_dependents","force":"",
			"max_retries":2,"retry_budget":10,"retry_on":"","cell_timeout_seconds":600,"run_timeout_seconds":0,"restart":false,
			"on_new_kernel":"rerun","on_change":"continue","state_name":"","dry_run":false}`,
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
		if a.ReadOnlyHint == nil || a.DestructiveHint == nil || a.IdempotentHint == nil || a.OpenWorldHint == nil {
			t.Errorf("%s: an annotation is left to the host's default", d.Name)
		} else if *a.ReadOnlyHint && *a.DestructiveHint {
			t.Errorf("%s is said to be both read-only and destructive", d.Name)
		}
		for name, raw := range map[string]json.RawMessage{"input": d.RawInputSchema, "output": d.RawOutputSchema} {
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
	core := startHost(t, Config{}).list
	notebook := startHost(t, Config{Toolsets: []Toolset{Notebook}}).list
	for set, most := range map[Toolset]int{Core: 26_000, Notebook: 12_000, Page: 1_600, Data: 3_000} {
		served, less := []Toolset{set}, core
		switch set {
		case Core:
			less = nil
		case Page: // the tools that it shares count once
			served, less = []Toolset{Notebook, Page}, notebook
		}
		list := startHost(t, Config{Toolsets: served}).list
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
		if bytes.Contains(tool.def.RawOutputSchema, []byte(`"description"`)) {
			t.Errorf("%s: the output schema has descriptions", tool.def.Name)
		}
	}
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
	for _, served := range [][]Toolset{nil, {Core}, {Core, Notebook}, {Core, Data}, {Core, Page}, {Core, Notebook, Page}, Toolsets} {
		guide := Guide(served)
		if len(guide) >= 2000 {
			t.Errorf("the guide of %s has %d bytes", served, len(guide))
		}
		known := map[string]bool{ // words with an underscore that are not tools
			"notebook_path": true,
			"wait_seconds":  true, "next_command": true, "waiting_for_input": true, "can_continue": true,
		}
		for _, set := range sets {
			on := set.name == Core || slices.Contains(served, set.name)
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
