package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// An agent and a person get the same answer, whatever its text: the fields of the tool's are those of
// the command's --json.
func TestBothReadersOfAnOperationGetTheSameAnswer(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	dir := t.TempDir()
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Env: []string{"LOCAL_SAVE_DIR=" + dir, "RELAY_STRUCTURED=on", "RELAY_TOOLSETS=all"}})
	l := newLaptop(t)
	key, err := auth.NewSecret(secret)
	must(t, err)
	l.relay("pair", auth.Pairing{URL: e.Ready.LocalURL, Secret: key}.String())
	book := filepath.Join(dir, "n.ipynb")
	must(t, os.WriteFile(book, []byte(`{"cells": [
		{"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# Title"},
		{"cell_type": "code", "id": "one", "metadata": {"tags": ["a"]}, "execution_count": null, "outputs": [], "source": "n = 1 #@param"}
	], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`), 0o600))
	ended := quick(t, h, "%reset -f\nimport os, numpy\nos.mkdir('both')\nopen('both/a  b.txt', 'w').write('one')\nopen('both/.hidden', 'w')\nos.mkdir('both/sub')\nx = numpy.zeros((2, 3))\nimport pandas\ndf = pandas.DataFrame({'a': [1, 2, 3]})\nname = 'a\\nb'").String("execution_id")
	if said := l.relay("packages", "numpy"); !strings.Contains(said, "Installed: nothing; unchanged: numpy ") { // the tool's answer has its run, too
		t.Error(said)
	}
	must(t, os.WriteFile(filepath.Join(l.dir, "loop.py"), []byte("result = i * 2"), 0o600))
	for _, each := range []struct {
		tool    string
		args    map[string]any
		command []string
	}{
		{"probe_colab_environment", nil, []string{"probe"}},
		{"list_colab_files", map[string]any{"path": "both"}, []string{"ls", "both"}},
		{"list_colab_files", map[string]any{"path": "both/a  b.txt"}, []string{"ls", "both/a  b.txt"}},
		{"list_colab_variables", nil, []string{"vars"}},
		{"inspect_variable", map[string]any{"name": "x"}, []string{"vars", "x"}},
		{"get_cells", map[string]any{"notebook_path": book}, []string{"nb", "cells", book}},
		{"get_cells", map[string]any{"notebook_path": book, "cellId": "one"}, []string{"nb", "cells", book, "1"}},
		{"update_cell", map[string]any{"notebook_path": book, "cellId": "one", "content": "2", "dry_run": true}, []string{"nb", "edit", book, "one", "-c", "2", "--dry-run"}},
		{"move_cell", map[string]any{"notebook_path": book, "cellId": "one", "cellIndex": 0, "dry_run": true}, []string{"nb", "mv", book, "1", "0", "-n"}},
		{"delete_cell", map[string]any{"notebook_path": book, "cellId": "one", "dry_run": true}, []string{"nb", "rm", book, "one", "-n"}},
		{"run_notebook", map[string]any{"notebook_path": book, "dry_run": true}, []string{"nb", "run", book, "-n"}},
		{"list_executions", map[string]any{"limit": 1}, []string{"ps", "-n", "1"}},
		{"interrupt_execution", map[string]any{"execution_id": ended[:8]}, []string{"interrupt", ended[:8]}},
		{"preview_dataframe", map[string]any{"name": "df", "rows": 2, "filter": "a > 1"}, []string{"df", "df", "--rows", "2", "--filter", "a > 1"}},
		{"save_kernel_state", map[string]any{"name": "s"}, []string{"save", "s"}},
		{"restore_kernel_state", map[string]any{"name": "s"}, []string{"restore", "s", "--yes"}},
		{"run_chunked_operation", map[string]any{"checkpoint_name": "both", "loop_code": "result = i * 2", "n_iterations": 3}, []string{"loop", "both", "--code", "loop.py", "-n", "3"}},
		{"cleanup_colab", nil, []string{"cleanup", "--yes"}},
		{"restart_kernel", nil, []string{"restart", "--yes"}},
	} {
		var person map[string]any
		if err := json.Unmarshal([]byte(l.relay(append(each.command, "--json")...)), &person); err != nil {
			t.Fatal(each.command, err)
		}
		model := call(t, h, each.tool, each.args).Fields
		if model["success"] != true {
			t.Errorf("%s: %v", each.tool, model["error"])
		}
		for _, fields := range []map[string]any{person, model} {
			settle(fields)
		}
		if !reflect.DeepEqual(person, model) {
			t.Errorf("%s answers\n%v\n%v answers\n%v", each.tool, model, each.command, person)
		}
	}
}

// settle removes what differs from one moment, or one relay, to the next.
func settle(fields map[string]any) {
	for name, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			settle(v)
		case []any:
			for _, each := range v {
				if one, ok := each.(map[string]any); ok {
					settle(one)
				}
			}
		}
		if passing.MatchString(name) {
			delete(fields, name)
		}
	}
}

var passing = regexp.MustCompile(`^(success|runtime|warning|hidden|kernel_id|kernel_status|cleared_variables|variables_cleared|version|created|(checkpoint_)?path|execution_id|execution_time_sec|sha256)$|^loaded_variables|_(gb|mb|pct|minutes|1)$`)
