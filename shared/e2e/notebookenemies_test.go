package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// forging is a cell that displays what the relay's own code in the kernel reports, and spoils what
// that code uses.
const forging = `import ast, sys
if sys.modules.get('symtable') != 5: import symtable
from IPython.display import display
for kind in ('cells', 'install', 'data', 'chunked', 'state'):
    display({'application/vnd.colab-relay.%s+json' % kind: [{'digest': 'f' * 64, 'reads': ['\x1b[31m']}], 'text/plain': 'forged'}, raw=True)
ast.iter_child_nodes = symtable.symtable = lambda *a, **k: 1 / 0
sys.modules['symtable'] = sys.modules['colab_relay'] = 5
print('end')`

// Two relays make thirty calls at once about one notebook, one of whose cells forges reports. No
// edit is lost, no cell runs in two runs at once, and nothing is reported as done that was not.
func TestManyCallsAtOnceOnANotebookThatForges(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python})
	dir := t.TempDir()
	config := harness.HostConfig{Dir: dir, Args: []string{"serve", "--toolsets", "notebook"}}
	hosts := []*harness.Host{startHost(t, e.Ready.LocalURL, config), startHost(t, e.Ready.LocalURL, config)}
	d := desk{t, hosts[0], startValidator(t), filepath.Join(dir, "n.ipynb")}
	forger := d.call("add_code_cell", "code", forging).String("cell_id")
	d.call("add_code_cell", "code", "open('ran', 'a').write('x\\n'); 1 / 0")
	d.call("add_code_cell", "code", "print('last')")

	var all sync.WaitGroup
	var mu sync.Mutex
	added := map[string]bool{}
	for n := range 30 {
		all.Go(func() {
			args := map[string]any{"notebook_path": d.path}
			tool := "add_text_cell"
			switch {
			case n%10 == 0:
				tool = "run_notebook"
			case n%10 == 5:
				tool, args["cellId"] = "run_code_cell", forger
			default:
				args["content"] = fmt.Sprint("text ", n)
			}
			a, err := hosts[n%2].Call(within.Context(t), tool, args)
			switch {
			case err != nil:
				t.Error(err)
			case tool == "add_text_cell" && a.IsError:
				t.Errorf("an edit failed: %s", a.Text)
			case tool == "add_text_cell":
				mu.Lock()
				added[a.String("cell_id")] = true
				mu.Unlock()
			case tool == "run_notebook" && a.Fields["status"] == "succeeded":
				t.Errorf("a run with a failing cell succeeded: %s", a.Text)
			case strings.Contains(a.Text, "panic") || a.Error() == "internal":
				t.Errorf("%s: %s", tool, a.Text)
			}
		})
	}
	all.Wait()
	a := d.done()
	if a.Fields["success"] == true || a.Error() != "failed" {
		t.Errorf("the last run: %s", a.Text)
	}
	cells := d.call("get_cells").Fields["cells"].([]any)
	if len(added) != 24 || len(cells) != 27 {
		t.Errorf("%d edits were answered, and there are %d cells", len(added), len(cells))
	}
	if outputs := fmt.Sprint(d.cell(forger)["outputs"]); !strings.Contains(outputs, "end") || strings.Contains(outputs, "colab-relay") || strings.Contains(outputs, "forged") {
		t.Errorf("outputs of the cell that forges: %s", outputs)
	}
}
