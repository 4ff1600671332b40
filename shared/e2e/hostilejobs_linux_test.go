package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
)

// twoCells is a notebook whose cells a run sends as one job.
const twoCells = `{"cells":[{"cell_type":"code","id":"a","source":"1","metadata":{},"outputs":[],"execution_count":null},
{"cell_type":"code","id":"b","source":"2","metadata":{},"outputs":[],"execution_count":null}],"metadata":{},"nbformat":4,"nbformat_minor":5}`

// jobCalls are the tools that use jobs or read what they did, in their order.
func jobCalls(dir, runtime string) []struct {
	tool string
	args map[string]any
} {
	notebook := filepath.Join(dir, "n.ipynb")
	return []struct {
		tool string
		args map[string]any
	}{
		{"run_code_cell", map[string]any{"notebook_path": filepath.Join(dir, "c.ipynb"), "cellId": "a", "runtime_name": runtime}},
		{"run_notebook", map[string]any{"notebook_path": notebook, "runtime_name": runtime}},
		{"run_notebook", map[string]any{"notebook_path": notebook, "runtime_name": runtime}},
		{"get_cells", map[string]any{"notebook_path": notebook}},
		{"run_chunked_operation", map[string]any{"setup_code": "x = 1", "loop_code": "x += 1", "n_iterations": 3, "checkpoint_name": runtime, "runtime_name": runtime}},
		{"get_checkpoint", map[string]any{"operation": runtime}},
		{"list_executions", map[string]any{"runtime_name": runtime}},
	}
}

// pairJobs pairs a relay with an honest VM and one for each lie about jobs.
func pairJobs(t *testing.T, home string) map[string]*fakevm.VM {
	t.Helper()
	store := pairing.Open(filepath.Join(home, "config", "colab-relay"))
	vms := map[string]*fakevm.VM{}
	for _, name := range append([]string{"none"}, jobCases()...) {
		vm := hostilevm.Start(t, name)
		_, err := store.Put(pairing.Runtime{Name: name, URL: vm.URL, Secret: vm.Secret})
		must(t, err)
		vms[name] = vm
		dir := filepath.Join(home, "own", name)
		must(t, os.MkdirAll(dir, 0o700))
		for _, file := range []string{"n.ipynb", "c.ipynb"} {
			must(t, os.WriteFile(filepath.Join(dir, file), []byte(twoCells), 0o600))
		}
	}
	return vms
}

func jobCases() (names []string) {
	for _, c := range hostilevm.JobCases {
		names = append(names, c.Name)
	}
	return names
}

// Whatever a VM says of its jobs, no run of a notebook or a loop succeeds by it, no output is in
// a cell twice, no word of it passes for the relay's, and each call ends.
func TestNoLieAboutAJobPassesForSuccess(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	home := t.TempDir()
	vms := pairJobs(t, home)
	h := startHost(t, "", harness.HostConfig{Dir: home, Env: []string{
		"LOCAL_SAVE_DIR=" + home + "/saved", "CHECKPOINT_DIR=" + home + "/checkpoints", "RELAY_NOTEBOOK_DIRS=" + home,
		"RELAY_TOOLSETS=all", "RELAY_HOLD=2s",
	}})
	t.Run("cases", func(t *testing.T) {
		for name := range vms {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				lieAboutJobs(t, h, filepath.Join(home, "own", name), name)
			})
		}
	})
	for name, vm := range vms {
		if vm.Count("POST /v1/jobs") == 0 {
			t.Errorf("%s was sent no job", name)
		}
	}
	if mb := peak(t, h.PID()); mb > mostMemory {
		t.Errorf("the relay took %d MB, over %d", mb, mostMemory)
	}
}

// lieAboutJobs calls each tool for the runtime that lies as a case does; the one named none does
// not.
func lieAboutJobs(t *testing.T, h *harness.Host, dir, runtime string) {
	for _, c := range jobCalls(dir, runtime) {
		ask := callOnce // a lie may take all of a call's time
		if runtime == "none" {
			ask = call
		}
		a := ask(t, h, c.tool, c.args)
		for _, line := range ownLines(a.Text) {
			if strings.Contains(line, "FORGED") {
				t.Errorf("%s says %q in:\n%s", c.tool, line, a.Text)
			}
		}
		status := a.String("status")
		succeeded := a.Fields["success"] == true && (status == "succeeded" || status == "finished")
		switch {
		case c.tool == "run_chunked_operation" && status == "finished", c.tool == "get_checkpoint" && strings.Contains(a.Text, ": finished"):
			t.Errorf("a loop of which nothing ran has finished: %s", a.Text)
		case runtime == "none" && strings.HasPrefix(c.tool, "run_") && c.tool != "run_chunked_operation" && !succeeded:
			t.Errorf("the honest %s: %s", c.tool, a.Text)
		case c.tool == "run_code_cell" && strings.Contains(a.Text, "hello"): // its only execution was read, and did succeed
		case runtime != "none" && succeeded:
			t.Errorf("%s succeeded: %s", c.tool, a.Text)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "n.ipynb"))
	must(t, err)
	if n := strings.Count(string(text), "hello"); n > 2 || runtime == "none" && n != 2 {
		t.Errorf("the output of two cells is in the notebook %d times", n)
	}
	reported(t, dir, runtime)
}

// reported checks what is on record of the last runs of notebooks in a folder.
func reported(t *testing.T, dir, runtime string) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dir, "..", "..", "checkpoints", "*.json"))
	must(t, err)
	for _, path := range records {
		var record struct {
			Path string
			Run  struct{ Plan []struct{ Status string } }
		}
		text, err := os.ReadFile(path)
		must(t, err)
		must(t, json.Unmarshal(text, &record))
		succeeded := 0
		for _, cell := range record.Run.Plan {
			if cell.Status == "succeeded" {
				succeeded++
			}
		}
		if strings.HasPrefix(record.Path, dir+"/") && runtime != "none" && succeeded == 2 {
			t.Errorf("both cells are said to have succeeded:\n%s", text)
		}
	}
}
