package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

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
