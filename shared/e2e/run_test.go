package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

func TestQuickRunAnswersWithValueAndOutput(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		_, h := pair(t, s)
		a := quick(t, h, "import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 41\nx + 1")
		want(t, a, map[string]any{"success": true, "status": "succeeded", "stdout": "out\n", "stderr": "err\n", "result": "42", "runtime": "env"})
		want(t, quick(t, h, "x"), map[string]any{"result": "41"})
	})
}

func TestExceptionIsDataWithAReadableTraceback(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		_, h := pair(t, s)
		a := quick(t, h, `raise ValueError("x")`)
		want(t, a, map[string]any{"success": false, "status": "failed"})
		if !a.IsError {
			t.Error("isError is not set")
		}
		e, _ := a.Fields["error"].(map[string]any)
		if e["ename"] != "ValueError" || e["evalue"] != "x" {
			t.Errorf("error = %v", e)
		}
		traceback := fmt.Sprint(e["traceback"])
		if !strings.Contains(traceback, "ValueError: x") || strings.Contains(traceback, "\x1b") {
			t.Errorf("traceback = %q", traceback)
		}
	})
}

func TestInputIsAskedForAndGiven(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		_, h := pair(t, s)
		a := quick(t, h, "name = input('name? ')\nsure = input('sure? ')\nprint('hello', name, sure)")
		want(t, a, map[string]any{"success": true, "status": "waiting_for_input"})
		if !strings.Contains(a.Text, "name? ") {
			t.Errorf("the prompt is missing: %s", a.Text)
		}
		id := a.String("execution_id")
		answer := map[string]any{"execution_id": id, "text": "Ada"}
		want(t, call(t, h, "provide_input", answer), map[string]any{"success": true})
		if again := call(t, h, "provide_input", answer); again.Error() != string(contract.CodeConflict) { // it is for the prompt that was shown
			t.Errorf("the same answer again: %s", again.Text)
		}
		a = call(t, h, "get_execution", map[string]any{"execution_id": id, "wait_seconds": 30})
		want(t, a, map[string]any{"status": "waiting_for_input", "input_prompt": "sure? "})
		want(t, call(t, h, "provide_input", map[string]any{"execution_id": id, "text": "yes"}), map[string]any{"success": true})
		out, last := follow(t, h, id, a.Int("next_offset"))
		want(t, last, map[string]any{"status": "succeeded"})
		if out != "hello Ada yes\n" {
			t.Errorf("stdout = %q", out)
		}
	})
}

func TestALongOutputIsKeptWhole(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		dir := t.TempDir()
		h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Env: []string{"LOCAL_SAVE_DIR=" + dir + "/saved"}})
		const lines = 50_000
		a := quick(t, h, fmt.Sprintf("for n in range(%d): print(n)", lines))
		want(t, a, map[string]any{"success": true, "status": "succeeded", "truncated": true})
		if len(a.Text) > 45_000 {
			t.Errorf("the text has %d characters", len(a.Text))
		}
		var wanted strings.Builder
		for n := range lines {
			fmt.Fprintln(&wanted, n)
		}
		saved := ""
		_ = filepath.WalkDir(dir+"/saved", func(path string, d os.DirEntry, _ error) error {
			if strings.HasPrefix(filepath.Base(path), "stdout-0-") {
				saved = path
			}
			return nil
		})
		text, err := os.ReadFile(saved)
		if err != nil || string(text) != wanted.String() {
			t.Errorf("the saved output %q differs: %d bytes, want %d (%v)", saved, len(text), wanted.Len(), err)
		}
		if !strings.Contains(a.Text, saved) {
			t.Errorf("the answer does not name %q", saved)
		}
	})
}

func TestTenRelaysAtOnceGetTheirOwnOutput(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		var hosts []*harness.Host
		for range 10 {
			hosts = append(hosts, startHost(t, e.Ready.LocalURL, harness.HostConfig{}))
		}
		var all sync.WaitGroup
		for i, h := range hosts {
			all.Go(func() {
				a, err := h.Call(t.Context(), "run_code_quick", map[string]any{
					"code": fmt.Sprintf("import time\nfor n in range(20):\n  print('relay %d line', n, flush=True)\n  time.sleep(.005)", i)})
				if err != nil {
					t.Error(err)
					return
				}
				var wanted strings.Builder
				for n := range 20 {
					fmt.Fprintf(&wanted, "relay %d line %d\n", i, n)
				}
				if got := a.String("stdout"); got != wanted.String() {
					t.Errorf("relay %d got %q (%s)", i, got, a.Text)
				}
			})
		}
		all.Wait()
	})
}

// traces are what questions about variables must not change.
const traces = `print(len(In) - get_ipython().execution_count, Out, [_, __, ___], sorted(n for n in globals() if not n.startswith('_i')), len(__import__('sys').meta_path), sorted(n for n in get_ipython().user_ns_hidden if not n.startswith('_i')))`

func TestVariablesInspectAndCleanup(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		_, h := pair(t, s)
		want(t, call(t, h, "cleanup_colab", nil), map[string]any{"success": true}) // of other tests' variables
		before := quick(t, h, "len(In)").String("result")
		quick(t, h, "import numpy as np\nm = np.zeros((3, 4))\nwords = ['a', 'b']\n_ = open('train.log', 'w').write('kept')")
		unasked := quick(t, h, traces).String("stdout")
		a := call(t, h, "list_colab_variables", nil)
		want(t, a, map[string]any{"success": true, "count": 2})
		if text := fmt.Sprint(a.Fields["variables"]); !strings.Contains(text, "ndarray") || !strings.Contains(text, "words") {
			t.Errorf("variables = %s", text)
		}
		want(t, call(t, h, "inspect_variable", map[string]any{"name": "m"}), map[string]any{"success": true, "shape": "[3 4]", "dtype": "float64"})
		wantError(t, call(t, h, "inspect_variable", map[string]any{"name": "none of that name"}), "not_found")
		if asked := quick(t, h, traces).String("stdout"); asked != unasked || asked == "" {
			t.Errorf("questions changed the kernel from\n%s\nto\n%s", unasked, asked)
		}
		want(t, call(t, h, "cleanup_colab", nil), map[string]any{"success": true, "variables_cleared": 2})
		want(t, call(t, h, "list_colab_variables", nil), map[string]any{"count": 0})
		want(t, quick(t, h, "import os; os.path.exists('train.log')"), map[string]any{"result": "True"})
		want(t, quick(t, h, "len(In) - "+before), map[string]any{"result": "5"}) // looking at variables is no run
	})
}

func TestListColabFilesShowsTheWorkdir(t *testing.T) {
	e, h := pair(t, stacks.Old(t))
	must(t, os.WriteFile(filepath.Join(e.Config.Dir, "data.csv"), []byte("a,b\n"), 0o600))
	odd := filepath.Join(e.Config.Dir, "a b&c=d %25#é")
	must(t, os.Mkdir(odd, 0o700))
	a := call(t, h, "list_colab_files", nil)
	want(t, a, map[string]any{"success": true, "file_count": 1})
	want(t, call(t, h, "list_colab_files", map[string]any{"path": odd}), map[string]any{"success": true, "path": odd, "file_count": 0})
	want(t, call(t, h, "list_colab_files", map[string]any{"path": "/etc"}), map[string]any{"success": false})
}

// ipykernel's own limit of a thousand messages would drop the rest silently.
func TestABurstOfDisplaysLosesNone(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		c := relayClient(t, e)
		const n = 1_500 // more than the kernel's own queue holds
		x, err := c.Submit(t.Context(), contract.Submit{
			Code: fmt.Sprintf("publish = get_ipython().display_pub.publish\nfor k in range(%d): publish({'text/plain': str(k)}, {})", n), WaitSeconds: 50,
		})
		must(t, err)
		next := 0
		for {
			for _, ev := range x.Events {
				if got := string(ev.Data["text/plain"]); got != fmt.Sprintf(`"%d"`, next) {
					t.Fatalf("display %d is %s (a %s event)", next, got, ev.Type)
				}
				next++
			}
			if x.End {
				break
			}
			x, err = c.Execution(t.Context(), x.ExecutionID, x.NextOffset, time.Second, 0)
			must(t, err)
		}
		if next != n {
			t.Errorf("%d displays of %d", next, n)
		}
	})
}
