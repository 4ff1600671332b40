package tools

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/toolsets"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// fieldsOnly returns the names of fields of answers that no tool has as an argument. A model
// that reads an answer's text sees none of them.
func fieldsOnly() []string {
	taken := map[string]bool{"execution_id": true, "request_id": true} // shown as they are
	for _, tool := range toolsOf(sets) {
		var schema struct{ Properties map[string]any }
		_ = json.Unmarshal(tool.def.RawInputSchema, &schema)
		for name := range schema.Properties {
			taken[name] = true
		}
	}
	names := []string{"next_command", "can_continue"}
	for _, answer := range []any{Outcome{}, Run{}, Chunked{}, NotebookRun{}, Executions{}, Listed{}, Standing{}, Installed{}, Checkpoint{}, Cells{}, CellView{}, Edited{}, AddedCell{}, DeletedCell{}, MovedCell{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(answer)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if strings.ContainsAny(name, "_ABCDEFGHIJKLMNOPQRSTUVWXYZ") && !taken[name] {
				names = append(names, name)
			}
		}
	}
	return names
}

// wantWords checks that a text speaks to a reader of texts.
func wantWords(t *testing.T, what, text string) {
	t.Helper()
	for _, name := range fieldsOnly() {
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			t.Errorf("%s: the field %s is in %s", what, name, text)
		}
	}
	if strings.Contains(text, "Next: ") || strings.Contains(text, `"success":`) {
		t.Errorf("%s: %s", what, text)
	}
}

var aDigest = regexp.MustCompile(`[0-9a-f]{64}`)

func TestTheTextsOfToolsForCells(t *testing.T) {
	d := newDesk(t)
	for _, test := range []struct {
		tool string
		args object
		want string
	}{
		{"get_cells", args("limit", 1), "Notebook: nbformat 4.5, python, 2 cells, digest D\nMore cells follow.\nNext step: call get_cells again with cellIndexStart=1\n--- cell 0 (id a), code, never_run, In[2], tags a, b\nx = 1\n--- end\n"},
		{"get_cells", args("cellId", "b"), "Notebook: nbformat 4.5, python, 2 cells, digest D\n--- cell 1 (id b), markdown\nText\n--- end\n"},
		{"get_cells", args("query", "none"), "Notebook: nbformat 4.5, python, 2 cells, digest D\nNo cells to show.\n"},
		{"add_text_cell", args("content", "c", "cellIndex", 0, "dry_run", true), "Nothing was written. The edit would be: markdown cell 0 (id ID) is new. The notebook would have 3 cells, digest D.\n--- diff\n--- /dev/null\n+++ cell 0 (id ID)\n@@ -0,0 +1 @@\n+c\n--- end\n"},
		{"add_code_cell", args("code", "y"), "Done: code cell 2 (id ID) is new. The notebook has 3 cells, digest D.\n--- diff\n--- /dev/null\n+++ cell 2 (id ID)\n@@ -0,0 +1 @@\n+y\n--- end\n"},
		{"update_cell", args("cellId", "a", "content", "x = 2"), "Done: cell 0 (id a) is changed. The notebook has 2 cells, digest D.\n--- diff\n--- cell 0 (id a)\n+++ cell 0 (id a)\n@@ -1 +1 @@\n-x = 1\n+x = 2\n--- end\n"},
		{"update_cell", args("cellId", "a", "content", "x = 1", "cell_type", "raw"), "Done: cell 0 (id a) is changed, and is a raw cell instead of a code cell. The notebook has 2 cells, digest D.\n"},
		{"move_cell", args("cellId", "a", "cellIndex", 1), "Done: cell 1 (id a) was cell 0 before. The notebook has 2 cells, digest D.\n--- diff\n--- cell 0 (id a)\n+++ cell 1 (id a)\n--- end\n"},
		{"delete_cell", args("cellId", "b"), "Done: markdown cell 1 (id b) is deleted. The notebook has 1 cell, digest D.\n--- diff\n--- cell 1 (id b)\n+++ /dev/null\n@@ -1 +0,0 @@\n-Text\n--- end\n"},
	} {
		d.put("n.ipynb", 5, codeCell("a", "x = 1"), textCell("b", "Text"))
		got := d.call(test.tool, test.args).Content[0].Text
		wantWords(t, test.tool, got)
		shown := regexp.MustCompile(`\(id [0-9a-f-]{8,}\)`).ReplaceAllString(aDigest.ReplaceAllString(unfenced(got), "D"), "(id ID)")
		if shown != test.want {
			t.Errorf("%s %v: got\n%s\nwant\n%s", test.tool, test.args, shown, test.want)
		}
	}
}

func TestTextsNameNoFields(t *testing.T) {
	tier.Long(t)
	f, dir := newFake(t), t.TempDir()
	rt := f.runtime(t)
	h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return rt, nil }, CheckpointDir: dir, Toolsets: toolsets.All})
	f.lists(listed("e1", 0, contract.StatusRunning, "x"), listed("e2", 1, contract.StatusSucceeded, "# colab-relay: save state"))
	for _, action := range []string{"interrupt", "input"} {
		f.answer("POST", contract.PathExecutions+"/e1/"+action, contract.Execution{ExecutionID: "e1", Status: contract.StatusRunning, Reason: "r\nNext step: x"})
	}
	f.installer(3, `{"installed":[{"name":"a","old":"1","new":"2"}],"restart_needed":["a"]}`, contract.StatusSucceeded, "")
	for name, data := range map[string]string{"train": chunkedRecord(2, "running", `,"carries":{"names":{"x":["set"]}}`), "book": onePlan, "answer": `{"success":true,"runtime":"test","status":"succeeded","execution_id":"e1","stdout":"x"}`} {
		if _, err := checkpoint.Save(dir, name, json.RawMessage(strings.ReplaceAll(data, "%q", `"failed"`))); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		tool string
		args object
	}{
		{"list_executions", nil},
		{"interrupt_execution", object{"execution_id": "e1"}},
		{"provide_input", object{"execution_id": "e1", "text": "x"}},
		{"get_execution", object{"execution_id": "nope"}},
		{"install_packages", object{"packages": "a"}},
		{"get_checkpoint", object{"checkpoint_name": "train"}},
		{"get_checkpoint", object{"checkpoint_name": "book"}},
		{"get_checkpoint", object{"checkpoint_name": "answer"}},
		{"get_checkpoint", object{"checkpoint_name": "none"}},
	} {
		text := h.call(test.tool, test.args).Content[0].Text
		wantWords(t, test.tool, text)
		if strings.Contains(text, "\nNext step: x") {
			t.Errorf("%s: the VM speaks as the relay: %s", test.tool, text)
		}
	}
	for _, tool := range toolsOf(sets) {
		switch tool.def.Name {
		case "list_executions", "get_execution", "interrupt_execution", "provide_input", "install_packages", "get_checkpoint",
			"get_cells", "add_code_cell", "add_text_cell", "update_cell", "delete_cell", "move_cell", "run_code_cell":
			wantWords(t, tool.def.Name, tool.def.Description)
		}
	}
}

func TestWhatIsAFieldOnly(t *testing.T) {
	names := strings.Join(fieldsOnly(), " ")
	for _, name := range []string{"next_offset", "newCellId", "restart_needed", "next_index", "checkpoint_saved", "execution_time_sec"} {
		if !strings.Contains(names, name) {
			t.Errorf("%s is not in %s", name, names)
		}
	}
	for _, name := range []string{"cellId", "checkpoint_name", "execution_id"} {
		if strings.Contains(" "+names+" ", " "+name+" ") {
			t.Errorf("%s is in %s", name, names)
		}
	}
}
