package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
)

// mostMemory bounds a relay, whatever is asked of it in parallel, in MB.
const mostMemory = 300

// What takes a relay much memory once takes it no more sixteen times in parallel.
func TestBombsInParallelCostTheRelayNoMore(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for _, c := range []struct{ name, tool string }{
		{"pictures-16mpx", "run_code_quick"},
		{"pictures-large", "run_code_quick"},
		{"pictures-long", "run_code_quick"},
		{"payloads", "run_code_quick"},
		{"payloads", "run_code_cell"},
		{"empty-lists", "run_code_cell"},
		{"events", "run_code_quick"},
		{"gzip", "run_code_quick"},
		{"endless-body", "run_code_quick"},
		{"executions", "list_executions"},
		{"variables", "list_colab_variables"},
		{"pictures-16mpx", "get_cells"},
		{"displays-small", "run_code_cell"},
		{"folder-long", "download_from_colab"},
		{"files", "list_colab_files"},
		{"job-large", "run_notebook"},
		{"job-large", "run_chunked_operation"},
		{"job-reason", "run_code_cell"},
		{"job-reason", "run_chunked_operation"},
		{"job-error", "run_notebook"},
	} {
		t.Run(c.name+" "+c.tool, func(t *testing.T) {
			vm := hostilevm.Start(t, c.name)
			home := t.TempDir()
			h := startHost(t, vm.URL, harness.HostConfig{Dir: home, Env: []string{
				"COLAB_SECRET=" + vm.Secret.Reveal(), "LOCAL_SAVE_DIR=" + home + "/saved", "CHECKPOINT_DIR=" + home + "/checkpoints",
				"RELAY_NOTEBOOK_DIRS=" + home, "RELAY_TOOLSETS=all", "RELAY_HOLD=8s",
			}})
			var all sync.WaitGroup
			for i := range 16 {
				dir := filepath.Join(home, fmt.Sprint(i))
				must(t, os.Mkdir(dir, 0o700))
				args := parallelArguments(t, c.tool, dir)
				all.Go(func() {
					if _, err := h.Call(within(t), c.tool, args); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			mb := peak(t, h.PID())
			if mb > mostMemory {
				t.Errorf("the relay took %d MB, over %d", mb, mostMemory)
			}
			files, size := inFolder(t, filepath.Join(home, "saved"))
			t.Logf("%d MB, %d files of %d bytes", mb, files, size)
		})
	}
}

// parallelArguments returns the arguments of a call that has files of its own in dir.
func parallelArguments(t *testing.T, tool, dir string) map[string]any {
	t.Helper()
	path := filepath.Join(dir, "n.ipynb")
	switch tool {
	case "run_notebook", "run_chunked_operation":
		return parallelJob(t, tool, dir, "")
	case "run_code_quick":
		return map[string]any{"code": "1"}
	case "run_code_cell":
		hostileFolder(t, dir)
		return map[string]any{"notebook_path": path, "cellId": "a"}
	case "download_from_colab":
		return map[string]any{"remote_path": "/content/data", "local_filename": filepath.Base(dir) + "/"}
	case "get_cells":
		outputs := strings.Join(hostilevm.PictureOutputs(4), ",")
		must(t, os.WriteFile(path, []byte(`{"cells":[{"cell_type":"code","id":"a","source":"","metadata":{},"execution_count":1,"outputs":[`+outputs+`]}],"metadata":{},"nbformat":4,"nbformat_minor":5}`), 0o600))
		return map[string]any{"notebook_path": path, "cellId": "a"}
	}
	return map[string]any{}
}
