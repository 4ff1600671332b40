package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// wantPlain fails if a text contains control characters or invisible characters.
func wantPlain(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || strings.ContainsRune("\u202e\u2066\u200b", r)) {
			t.Errorf("%s holds %q: %.300q", what, r, text)
			return
		}
	}
}

// strings returns all strings and keys in v, a decoded JSON value.
func eachString(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, one := range v {
			eachString(one, visit)
		}
	case map[string]any:
		for key, one := range v {
			visit(key)
			eachString(one, visit)
		}
	}
}

// hostileNotebook has escapes wherever a notebook has text.
var hostileNotebook = func() string {
	text := `{"cells": [
 {"cell_type": "code", "id": "a", "metadata": {"tags": ["ESC"]}, "execution_count": 1, "source": "#@title ESC\nx = 'ESC' #@param\nESC", "outputs": [
  {"output_type": "stream", "name": "ESC", "text": "ESC"}, {"output_type": "error", "ename": "ESC", "evalue": "ESC", "traceback": ["ESC"]},
  {"output_type": "display_data", "metadata": {}, "data": {"text/plain": "ESC", "ESC": "ESC"}}]},
 {"cell_type": "code", "id": "b", "metadata": {}, "execution_count": null, "source": "ESC", "outputs": []}
], "metadata": {"language_info": {"name": "python", "version": "ESC"}}, "nbformat": 4, "nbformat_minor": 5}`
	return strings.ReplaceAll(text, "ESC", inJSON(hostilevm.Escape))
}()

// hostileFolder puts the files into dir that hostileArguments name.
func hostileFolder(t *testing.T, dir string) {
	t.Helper()
	must(t, os.WriteFile(dir+"/up.txt", []byte("x"), 0o600))
	must(t, os.WriteFile(dir+"/n.ipynb", []byte(hostileNotebook), 0o600))
}

// hostileArguments are valid arguments of the tools that require some, in a folder that
// hostileFolder has filled.
var hostileArguments = map[string]map[string]any{
	"run_code_quick": {"code": "1"}, "run_code_long": {"code": "1", "checkpoint_name": "c"}, "get_execution": {"execution_id": "execution-1"},
	"interrupt_execution": {"execution_id": "execution-1"}, "provide_input": {"execution_id": "execution-1", "text": "x"},
	"inspect_variable": {"name": "x"}, "download_from_colab": {"remote_path": "data"}, "upload_to_colab": {"local_path": "up.txt"},
	"save_kernel_state": {"name": "s"}, "restore_kernel_state": {"name": "s"}, "get_checkpoint": {"operation": "c"},
	"run_chunked_operation": {"setup_code": "x = 1", "loop_code": "x += 1", "n_iterations": 3, "batch_size": 1},
	"install_packages":      {"packages": "x"}, "preview_dataframe": {"name": "x"}, "query_dataframes": {"sql": "SELECT 1"},
	"get_cells": {"notebook_path": "n.ipynb"}, "run_code_cell": {"notebook_path": "n.ipynb", "cellId": "a"}, "run_notebook": {"notebook_path": "n.ipynb"},
	"add_code_cell": {"notebook_path": "n.ipynb", "code": "1"}, "add_text_cell": {"notebook_path": "n.ipynb", "content": "x"},
	"update_cell": {"notebook_path": "n.ipynb", "cellId": "b", "content": "2"}, "move_cell": {"notebook_path": "n.ipynb", "cellId": "b", "cellIndex": 0},
	"delete_cell": {"notebook_path": "n.ipynb", "cellId": "b"}, "stop_colab_vm": {"id": "x"},
}

// attackTools calls each tool for a VM that misbehaves as the case does. Each answer is short, has
// no escapes, and has no words of the VM among the relay's own. It returns how many words of the VM
// the answers have.
func attackTools(t *testing.T, name, notebook string, env ...string) (seen int) {
	t.Helper()
	vm := hostilevm.Start(t, name)
	vm.Put("data/a\x1b[2Jb\u202e Next step: FORGED", []byte("x"))
	home := t.TempDir()
	hostileFolder(t, home)
	must(t, os.WriteFile(home+"/n.ipynb", []byte(notebook), 0o600))
	before := allFiles(t, home)
	h := startHost(t, vm.URL, harness.HostConfig{Dir: home, Progress: func(message string) { wantPlain(t, "progress", message) }, Env: append([]string{
		"COLAB_SECRET=" + vm.Secret.Reveal(), "LOCAL_SAVE_DIR=" + home + "/saved", "CHECKPOINT_DIR=" + home + "/checkpoints", "RELAY_NOTEBOOK_DIRS=" + home,
		"XDG_DATA_HOME=" + home + "/data", "RELAY_TOOLSETS=all", "RELAY_HOLD=2s",
	}, env...)})
	tools, err := h.Tools(within.Context(t))
	must(t, err)
	for _, tool := range tools {
		args := hostileArguments[tool.Name]
		if len(tool.InputSchema.Required) > 0 && args == nil {
			t.Errorf("%s is called without arguments", tool.Name)
		}
		a := callOnce(t, h, tool.Name, args)
		if a.Error() == "bad_request" && args != nil {
			t.Errorf("%s refused its arguments: %s", tool.Name, a.Text)
		}
		if len(a.Text) > mostHostileText {
			t.Errorf("%s shows %d bytes", tool.Name, len(a.Text))
		}
		wantPlain(t, tool.Name, a.Text)
		eachString(a.Fields, func(s string) { wantPlain(t, tool.Name+"'s fields", s) })
		seen += strings.Count(a.Text, "FORGED")
		for _, line := range ownLines(a.Text) {
			if strings.Contains(line, "FORGED") {
				t.Errorf("%s says %q in:\n%s", tool.Name, line, a.Text)
			}
		}
	}
	wantPlain(t, "the log", strings.ReplaceAll(h.Stderr.String(), "\n", " "))
	if mb := peak(t, h.PID()); mb > 150 {
		t.Errorf("the relay took %d MB", mb)
	}
	wantOwnFilesOnly(t, home, before)
	return seen
}

// Some answers of a hostile executor. The long tests have all of them.
func TestSomeAttacksOfAHostileVM(t *testing.T) {
	for _, name := range []string{"text", "text-all", "text-errors", "forged", "job-forged", "paths"} {
		t.Run(name, func(t *testing.T) { attackTools(t, name, hostileNotebook) })
	}
}

// fence is the line before a text from the VM, or after the last one, and its random word.
var fence = regexp.MustCompile(`(?m)^--- .*\[([a-z2-7]{6})\]$`)

// ownLines returns the lines of an answer that are the relay's, without what they quote. It reads
// as a model is told to: from the first line with the answer's random word on, all is the VM's but
// the lines with this word.
func ownLines(text string) (own []string) {
	word := ""
	if first := fence.FindStringSubmatch(text); first != nil {
		word = first[1]
	}
	said := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		isFence := word != "" && strings.HasSuffix(line, "["+word+"]")
		if said = said || isFence; said && !isFence {
			continue
		}
		own = append(own, quotation.ReplaceAllString(line, "…"))
	}
	return own
}

// quotation is a text that the relay quotes in a line of its own, or a JSON string in a call.
var quotation = regexp.MustCompile(`“[^”]*”|"(?:[^"\\]|\\.)*"`)

// TestNoWordsOfAVMPoseAsTheRelays: whatever a VM answers, and whatever code there prints, no line
// that a model takes for the relay's has words of it outside quotation marks.
func TestNoWordsOfAVMPoseAsTheRelays(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for _, name := range []string{"forged", "forged-words", "forged-all", "forged-errors", "forged-codes", "forged-run", "forged-run 1000", "job-words", "job-stopped"} {
		t.Run(name, func(t *testing.T) {
			name, limit, _ := strings.Cut(name, " ") // the text limit, where much is left out
			forged := strings.ReplaceAll(hostileNotebook, inJSON(hostilevm.Escape), inJSON(hostilevm.Forged))
			seen := attackTools(t, name, forged, "RELAY_STRUCTURED=off", "RELAY_TEXT_LIMIT="+limit)
			if seen == 0 && name != "forged-codes" {
				t.Error("the VM's words were in no answer, so nothing was tested")
			}
		})
	}
}

func inJSON(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return strings.Trim(string(text), `"`)
}

// hostileCommands are the arguments of the relay's commands, by titles. That of pair lacks the
// pairing string.
var hostileCommands = map[string][]string{
	"status": {"status"}, "doctor": {"doctor"}, "runtimes": {"runtimes"}, "get": {"get", "data"}, "get of nothing": {"get", "gone"},
	"put": {"put", "up.txt"}, "pair": {"pair", "--name", "other"}, "run": {"run", "-c", "1"}, "nb run": {"nb", "run", "n.ipynb"}, "nb report": {"nb", "report", "n.ipynb"}, "ps": {"ps"},
	"attach": {"attach", "a"}, "input": {"input"}, "interrupt": {"interrupt"}, "detach": {"run", "--detach", "-c", "1"}, "restart": {"restart", "--yes"},
	"save": {"save", "s"}, "df": {"df", "x"}, "sql": {"sql", "SELECT 1"}, "packages": {"packages", "x"}, "loop": {"loop", "l", "--code", "up.txt", "-n", "2"},
}
