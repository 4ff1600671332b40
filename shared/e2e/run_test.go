package e2e

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
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

// wantSaid checks that the text and the structuredContent of an answer both say all the words.
func wantSaid(t *testing.T, a harness.Answer, words ...string) {
	t.Helper()
	fields := strings.ReplaceAll(fmt.Sprint(a.Fields), `\"`, `"`)
	for _, word := range words {
		if !strings.Contains(a.Text, word) || !strings.Contains(fields, word) {
			t.Errorf("%q is missing:\n%s\n%s", word, a.Text, fields)
		}
	}
}

// Whatever needs the kernel says at once which run has it, and what that one asks.
func TestCallsBehindARunThatWaitsForInputSayWhoseAnswerIsMissing(t *testing.T) {
	_, h := pair(t, stacks.Old(t))
	holder := quick(t, h, "x = input('name? ')\nimport getpass\nk = getpass.getpass('key: ')").String("execution_id")
	words := []string{"run " + holder + `, which waits for input ("name? ")`, fmt.Sprintf("provide_input (execution_id %q)", holder), "interrupt_execution"}

	a := call(t, h, "run_code_quick", map[string]any{"code": "print('x is', x)"})
	want(t, a, map[string]any{"success": true, "status": "queued", "behind": holder})
	wantSaid(t, a, words...)
	queued := a.String("execution_id")
	wantSaid(t, call(t, h, "get_execution", map[string]any{"execution_id": queued, "wait_seconds": 30}), words...)
	a = call(t, h, "list_colab_variables", nil)
	want(t, a, map[string]any{"success": false})
	wantSaid(t, a, words...)
	a = call(t, h, "save_kernel_state", map[string]any{"name": "s"})
	want(t, a, map[string]any{"success": true, "status": "saving", "can_continue": true})
	wantSaid(t, a, words...)
	a = call(t, h, "run_chunked_operation", map[string]any{"setup_code": "", "loop_code": "i", "n_iterations": 2})
	want(t, a, map[string]any{"success": true, "status": "running", "can_continue": true})
	wantSaid(t, a, words...)

	want(t, call(t, h, "provide_input", map[string]any{"execution_id": holder, "text": "Ada"}), map[string]any{"success": true})
	person := "colab-relay input " + holder
	a = call(t, h, "get_execution", map[string]any{"execution_id": holder, "wait_seconds": 30})
	want(t, a, map[string]any{"success": true, "status": "waiting_for_input", "input_prompt": "key: "})
	wantSaid(t, a, person)
	a = call(t, h, "get_execution", map[string]any{"execution_id": queued, "wait_seconds": 30})
	wantSaid(t, a, person, `which asks for a password ("key: ")`)
	a = call(t, h, "provide_input", map[string]any{"execution_id": holder, "text": "hunter2"})
	if a.Error() != string(contract.CodePasswordPrompt) {
		t.Errorf("provide_input: %v", a.Fields)
	}
	wantSaid(t, a, "colab-relay input ID")
	call(t, h, "interrupt_execution", map[string]any{"execution_id": holder})
	out, last := follow(t, h, queued, 0)
	want(t, last, map[string]any{"status": "succeeded"})
	if out != "x is Ada\n" {
		t.Errorf("stdout = %q", out)
	}
	if _, behind := last.Fields["behind"]; behind {
		t.Errorf("%v", last.Fields)
	}
}

// The call waits in the queue when the run before it begins to wait for input.
func TestACallInTheQueueAnswersWhenTheRunBeforeItBeginsToAsk(t *testing.T) {
	e, h := pair(t, stacks.Old(t))
	signal := filepath.Join(t.TempDir(), "go")
	c := relayClient(t, e)
	holder, err := c.Submit(t.Context(), contract.Submit{Code: fmt.Sprintf("import os, time\nwhile not os.path.exists(%q): time.sleep(.01)\ninput('now? ')", signal)})
	must(t, err)
	answered := make(chan harness.Answer, 1)
	go func() {
		a, err := h.Call(t.Context(), "run_code_quick", map[string]any{"code": "2"})
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		list, err := c.List(t.Context(), 1)
		return err == nil && len(list.Executions) == 1 && list.Executions[0].Status == contract.StatusQueued, err
	}))
	must(t, os.WriteFile(signal, nil, 0o600))
	a := <-answered
	want(t, a, map[string]any{"status": "queued", "behind": holder.ExecutionID})
	wantSaid(t, a, `which waits for input ("now? ")`)
	_, err = c.Interrupt(t.Context(), holder.ExecutionID)
	must(t, err)
}

// TestAListShowsWhatTheCallerRan: the relay's own code is left out, and the beginning of an id is
// enough to name a run.
func TestAListShowsWhatTheCallerRan(t *testing.T) {
	h := allTools(t, stacks.Old(t), "20s")
	a := quick(t, h, "x = 7; print('seven')")
	want(t, call(t, h, "save_kernel_state", map[string]any{"name": "s"}), map[string]any{"success": true})
	call(t, h, "inspect_variable", map[string]any{"name": "x"})
	call(t, h, "preview_dataframe", map[string]any{"name": "x"})
	chunked := map[string]any{"setup_code": "", "loop_code": "result = i", "n_iterations": 3, "checkpoint_name": "loop"}
	want(t, call(t, h, "run_chunked_operation", chunked), map[string]any{"status": "finished"})

	list := call(t, h, "list_executions", nil).Text
	for _, line := range []string{"--- runs, newest first [", "  run_chunked_operation \"loop\", round\n", "  x = 7; print('seven')\n", "of the relay's own code or earlier rounds of chunked runs; include_internal=true lists them"} {
		if !strings.Contains(list, line) {
			t.Errorf("%q is not in\n%s", line, list)
		}
	}
	all := call(t, h, "list_executions", map[string]any{"include_internal": true}).Text
	if !strings.Contains(all, "(the relay's own) save state") || strings.Contains(list, "(the relay's own)") {
		t.Errorf("%s\n%s", all, list)
	}
	id := a.String("execution_id")
	if text := call(t, h, "get_execution", map[string]any{"execution_id": id[:8]}).Text; !strings.Contains(text, "execution_id "+id) || !strings.Contains(text, "seven") {
		t.Error(text)
	}
	wantError(t, call(t, h, "interrupt_execution", map[string]any{"execution_id": "zzzz"}), "not_found")

	text := call(t, h, "get_checkpoint", map[string]any{"checkpoint_name": "loop"}).Text
	for _, line := range []string{"is a chunked run on runtime", ": finished.\n3 of 3 iterations done (100%)", "--- values of result: 3 [", "]\n0: 0\n1: 1\n2: 2\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

// A step of a job is listed with the name of its source, so that a person and an agent find a cell
// again.
func TestAStepIsListedWithTheNameOfItsSource(t *testing.T) {
	e, h := pair(t, stacks.Old(t))
	c := relayClient(t, e)
	id := "named-" + rand.Text()
	_, err := c.SubmitJobTo(within.Context(t), c.InstanceID(), contract.JobSubmit{JobID: id, Steps: []contract.JobStep{{StepID: "1", Code: "6 * 7", SourceName: "a.ipynb cell 3"}}})
	must(t, err)
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		x, err := c.Job(within.Context(t), id, 0, 0)
		return x.State == contract.JobFinished, err
	}))
	const named = "[a.ipynb cell 3] 6 * 7"
	if a := call(t, h, "list_executions", nil); !strings.Contains(a.Text, named) {
		t.Errorf("list_executions says %q", a.Text)
	}
}

// longOutput is code that prints size bytes that hardly compress, a multiple of 1024.
func longOutput(size int64) string {
	return fmt.Sprintf(`
import base64, os
for n in range(%d):
    print(base64.b85encode(os.urandom(1023 * 4 // 5)).decode()[:1023])
`, size>>10)
}

// Output that is read page by page is sent once for the file and once for the pages, and
// is stored on the laptop once. A page ends with a whole event, so an event that no longer fits
// is sent again with the next page: the pages take up to twice their size, depending on how
// the kernel split the output.
func TestLongOutputIsPagedThroughWithoutMovingItAgainAndAgain(t *testing.T) {
	const longBytes = int64(256 << 10)
	dir := t.TempDir()
	e := borrowExecutor(t, stacks.Old(t))
	wire := newWire(t, e)
	h := startHost(t, "http://"+wire.Addr, harness.HostConfig{Env: []string{"LOCAL_SAVE_DIR=" + dir}})
	id := quick(t, h, longOutput(longBytes)).String("execution_id")
	again := call(t, h, "get_execution", map[string]any{"execution_id": id, "wait_seconds": 45}) // head and tail
	want(t, again, map[string]any{"status": "succeeded", "truncated": true})
	pages, shown := 0, 0
	for offset, more := again.Int("next_offset"), true; more; pages++ {
		a := call(t, h, "get_execution", map[string]any{"execution_id": id, "offset": offset})
		want(t, a, map[string]any{"status": "succeeded"})
		next := a.Int("next_offset")
		if next <= offset {
			t.Fatalf("page %d spans %d to %d: %.500s", pages, offset, next, a.Text)
		}
		shown += len(a.String("stdout"))
		offset, more = next, a.Fields["truncated"] == true
	}
	_, moved, _ := wire.Passed()
	kept := size(t, filepath.Join(dir, "executions"))
	t.Logf("%d pages show %d bytes; %d were sent, %d are stored", pages, shown, moved, kept)
	if int64(shown) < longBytes*99/100 {
		t.Errorf("the pages show %d of %d bytes", shown, longBytes)
	}
	if most := longBytes * 5; moved > most {
		t.Errorf("%d bytes were sent for %d of output, want at most %d", moved, longBytes, most)
	}
	if most := longBytes * 5 / 4; kept < longBytes || kept > most {
		t.Errorf("%d bytes are stored for %d of output", kept, longBytes)
	}
}

// size returns the total size of the files below dir.
func size(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		bytes += info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
