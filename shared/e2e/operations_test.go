package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// both is an operation as its two readers call it.
type both struct {
	tool    string
	args    map[string]any
	command []string
}

// An agent and a person get the same answer, whatever its text: the fields of the tool's are those of
// the command's --json. Where the command prints what the code prints, it prints what the tool's
// answer has. Every tool is called.
func TestBothReadersOfAnOperationGetTheSameAnswer(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	l := newLaptop(t)
	key, err := auth.NewSecret(secret)
	must(t, err)
	l.relay("pair", auth.Pairing{URL: e.Ready.LocalURL, Secret: key}.String())
	google, edge := colabclitest.Install(t), ngroktest.Start(t)
	script := fmt.Sprintf("#!/bin/sh\nCOLAB_RELAY_NGROK_SERVER=%s COLAB_RELAY_NGROK_CA='%s' exec '%s' \"$@\"\n", edge.Addr, edge.CAFile, google.Path)
	must(t, os.WriteFile(filepath.Join(l.dir, "colab"), []byte(script), 0o700))
	l.env = []string{"PATH=" + l.dir + ":/usr/bin:/bin", "NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_RELEASE_URL=" + serveRelease(t), "RELAY_HISTORY=off"}
	h, err := harness.StartHost(within.Context(t), harness.HostConfig{Binary: binaries.Relay, Dir: l.dir, Env: append(l.command().Env,
		"RELAY_HOLD=40s", "RELAY_STRUCTURED=on", "RELAY_TOOLSETS=all")})
	must(t, err)
	t.Cleanup(func() { h.Close() })
	tools, err := h.Tools(within.Context(t))
	must(t, err)
	missing := map[string]bool{}
	for _, tool := range tools {
		missing[tool.Name] = true
	}
	delete(missing, "open_colab_browser_connection") // each reader connects a tab of its own: TestOneCommandPairsTheVMOfColabsPage

	write := func(name, text string) string {
		path := filepath.Join(l.dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const cells = `{"cells": [
		{"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# Title"},
		{"cell_type": "code", "id": "one", "metadata": {"tags": ["a"]}, "execution_count": null, "outputs": [], "source": "n = 1 #@param\nprint('of a cell')"}
	], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`
	book, ran := write("n.ipynb", cells), write("ran.ipynb", cells)
	withoutIDs := write("old.ipynb", `{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}`)
	write("loop.py", "result = i * 2")
	data := write("data.txt", "some data")
	const code = "print(6 * 7, end='')"
	ended := quick(t, h, "%reset -f\nimport os, numpy\nos.mkdir('both')\nopen('both/a  b.txt', 'w').write('one')\nopen('both/.hidden', 'w')\nos.mkdir('both/sub')\nx = numpy.zeros((2, 3))\nimport pandas\ndf = pandas.DataFrame({'a': [1, 2, 3]})\nname = 'a\\nb'\nprint('ended')").String("execution_id")

	for _, each := range []both{
		{"run_code_quick", map[string]any{"code": code}, []string{"run", "-c", code}},
		{"run_code_long", map[string]any{"code": code}, []string{"run", "-c", code}},
		{"get_execution", map[string]any{"execution_id": ended}, []string{"logs", ended}},
		{"run_code_cell", map[string]any{"notebook_path": ran, "cellId": "one"}, []string{"nb", "run", ran, "--cells", "one", "--outputs"}},
	} {
		delete(missing, each.tool)
		if model, person := call(t, h, each.tool, each.args), l.relay(each.command...); !strings.HasPrefix(person, model.String("stdout")) { // a summary may follow
			t.Errorf("%s answers %q, %v prints %q", each.tool, model.String("stdout"), each.command, person)
		}
	}
	for _, each := range []both{
		{"check_colab_connection", nil, []string{"status"}},
		{"probe_colab_environment", nil, []string{"probe"}},
		{"list_colab_files", map[string]any{"path": "both"}, []string{"ls", "both"}},
		{"list_colab_files", map[string]any{"path": "both/a  b.txt"}, []string{"ls", "both/a  b.txt"}},
		{"upload_to_colab", map[string]any{"local_path": data, "remote_path": "both/model"}, []string{"put", data, "both/person"}},
		{"download_from_colab", map[string]any{"remote_path": "both/sub", "local_filename": "model"}, []string{"get", "both/sub", filepath.Join(l.dir, "colab_results", "person")}},
		{"list_colab_variables", nil, []string{"vars"}},
		{"inspect_variable", map[string]any{"name": "x"}, []string{"vars", "x"}},
		{"install_packages", map[string]any{"packages": "numpy"}, []string{"packages", "numpy"}},
		{"get_cells", map[string]any{"notebook_path": book}, []string{"nb", "cells", book}},
		{"get_cells", map[string]any{"notebook_path": book, "cellId": "one"}, []string{"nb", "cells", book, "1"}},
		{"add_code_cell", map[string]any{"notebook_path": withoutIDs, "code": "2", "dry_run": true}, []string{"nb", "add", withoutIDs, "-c", "2", "-n"}},
		{"add_text_cell", map[string]any{"notebook_path": withoutIDs, "content": "2", "dry_run": true}, []string{"nb", "add", withoutIDs, "--markdown", "-c", "2", "-n"}},
		{"update_cell", map[string]any{"notebook_path": book, "cellId": "one", "content": "2", "dry_run": true}, []string{"nb", "edit", book, "1", "-c", "2", "--dry-run"}},
		{"move_cell", map[string]any{"notebook_path": book, "cellId": "one", "cellIndex": 0, "dry_run": true}, []string{"nb", "mv", book, "1", "0", "-n"}},
		{"delete_cell", map[string]any{"notebook_path": book, "cellId": "one", "dry_run": true}, []string{"nb", "rm", book, "1", "-n"}},
		{"run_notebook", map[string]any{"notebook_path": book, "dry_run": true}, []string{"nb", "run", book, "-n"}},
		{"list_executions", map[string]any{"limit": 1}, []string{"ps", "-n", "1"}},
		{"interrupt_execution", map[string]any{"execution_id": ended[:8]}, []string{"interrupt", ended[:8]}},
		{"preview_dataframe", map[string]any{"name": "df", "rows": 2, "filter": "a > 1"}, []string{"df", "df", "--rows", "2", "--filter", "a > 1"}},
		{"save_kernel_state", map[string]any{"name": "s"}, []string{"save", "s"}},
		{"restore_kernel_state", map[string]any{"name": "s"}, []string{"restore", "s", "--yes"}},
		{"run_chunked_operation", map[string]any{"checkpoint_name": "both", "loop_code": "result = i * 2", "n_iterations": 3}, []string{"loop", "both", "--code", "loop.py", "-n", "3"}},
		{"get_checkpoint", map[string]any{"checkpoint_name": "both"}, []string{"checkpoints", "both"}},
		{"start_colab_vm", map[string]any{"accelerators": "T4", "name": "model"}, []string{"vm", "up", "--gpu", "T4", "--name", "person"}},
		{"list_colab_vms", nil, []string{"vm", "list"}},
		{"stop_colab_vm", map[string]any{"id": "model"}, []string{"vm", "down", "person"}},
		{"cleanup_colab", nil, []string{"cleanup", "--yes"}},
		{"restart_kernel", nil, []string{"restart", "--yes"}},
	} {
		delete(missing, each.tool)
		if each.tool == "start_colab_vm" {
			l.relay("vm", "login", "--yes")
		}
		person := asJSON(t, []byte(l.relay(append(each.command, "--json")...)))
		if each.tool == "check_colab_connection" { // the command shows all runtimes
			person = person["runtimes"].([]any)[0].(map[string]any)
		}
		sameFields(t, each, call(t, h, each.tool, each.args), person)
	}
	const query = "FROM df" // this stack has no DuckDB
	refused, err := l.command("sql", query).CombinedOutput()
	if model := call(t, h, "query_dataframes", map[string]any{"sql": query}); err == nil || model.Error() == "" || !strings.Contains(string(refused), model.Fields["error"].(map[string]any)["message"].(string)) {
		t.Errorf("query_dataframes answers %s\nsql prints %s", model.Text, refused)
	}
	delete(missing, "query_dataframes")
	asks := func() string { return quick(t, h, "input('? ')").String("execution_id") }
	model, typed := call(t, h, "provide_input", map[string]any{"execution_id": asks(), "text": "42"}), l.command("input", "--json", asks())
	typed.Stdin = strings.NewReader("42\n")
	person, err := typed.Output()
	must(t, err)
	typedAnswer := asJSON(t, person)
	delete(model.Fields, "status") // the runs may have ended
	delete(typedAnswer, "status")
	sameFields(t, both{"provide_input", nil, []string{"input"}}, model, typedAnswer)
	delete(missing, "provide_input")

	if len(missing) > 0 {
		t.Errorf("nothing compares %q", slices.Sorted(maps.Keys(missing)))
	}
}

func asJSON(t *testing.T, text []byte) (fields map[string]any) {
	t.Helper()
	must(t, json.Unmarshal(text, &fields))
	return fields
}

// sameFields fails unless the tool's answer has the fields of the command's.
func sameFields(t *testing.T, each both, model harness.Answer, person map[string]any) {
	t.Helper()
	if model.Fields["success"] != true {
		t.Errorf("%s: %v", each.tool, model.Fields["error"])
	}
	settle(person)
	settle(model.Fields)
	if each.tool == "install_packages" { // its answer has the run, too
		maps.DeleteFunc(model.Fields, func(name string, _ any) bool { _, shared := person[name]; return !shared })
	}
	read, seen := named.Replace(fmt.Sprint(model.Fields)), named.Replace(fmt.Sprint(person))
	if read != seen {
		t.Errorf("%s answers\n%s\n%s answers\n%s", each.tool, read, each.command, seen)
	}
}

// named replaces the names that differ between the calls.
var named = strings.NewReplacer("person", "NAME", "model", "NAME")

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

var passing = regexp.MustCompile(`^(success|runtime|default|relay_version|next_command|warning|hidden|kernel_id|kernel_status|cleared_variables|variables_cleared|version|created|(checkpoint_)?path|(execution_)?id|asked|execution_time_sec|sha256)$|^loaded_variables|_(gb|mb|ms|pct|minutes|1)$`)

// laptop is a person's computer: a terminal for the relay's commands, and a home folder, which
// hosts may use too.
type laptop struct {
	t   *testing.T
	dir string
	env []string // for commands, beside that of newLaptop
}

func newLaptop(t *testing.T) laptop { return laptop{t: t, dir: t.TempDir()} }

func (l laptop) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(within.Context(l.t), binaries.Relay, args...)
	cmd.Dir = l.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "XDG_CONFIG_HOME=" + l.dir + "/config", "XDG_CACHE_HOME=" + l.dir + "/cache", "XDG_DATA_HOME=" + l.dir + "/data"}, l.env...)
	return cmd
}

// relay runs a command, which must succeed, and returns its output.
func (l laptop) relay(args ...string) string {
	l.t.Helper()
	cmd := l.command(args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("relay %s: %v\n%s%s", args[0], err, out, &errs)
	}
	return string(out)
}
