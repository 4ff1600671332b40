package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// typist answers forms, and knows which there were.
type typist struct {
	answers func(n int, message string) (action, text string) // n counts from 1
	mu      sync.Mutex
	seen    []string
}

func (p *typist) form(message string) (action, text string) {
	p.mu.Lock()
	p.seen = append(p.seen, message)
	n := len(p.seen)
	p.mu.Unlock()
	return p.answers(n, message)
}

func (p *typist) messages() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func accept(n int, _ string) (action, text string) { return "accept", fmt.Sprintf("answer %d", n) }

const elicit = "RELAY_ELICIT=input"

func TestAPersonAnswersInputInAForm(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	person := &typist{answers: accept}
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Initialize: true, Form: person.form, Env: []string{elicit}})

	a := quick(t, h, "print(input('name? '), '/', input('place? '))")
	want(t, a, map[string]any{"success": true, "status": "succeeded", "stdout": "answer 1 / answer 2\n"})
	seen := person.messages()
	if len(seen) != 2 || !strings.Contains(seen[0], "name? ") || !strings.Contains(seen[1], "place? ") ||
		!strings.Contains(seen[0], `runtime "env" (run `+a.String("execution_id")) {
		t.Errorf("forms %q", seen)
	}

	a = quick(t, h, "import getpass\ngetpass.getpass('key: ')")
	want(t, a, map[string]any{"success": true, "status": "waiting_for_input"})
	wantSaid(t, a, "colab-relay input "+a.String("execution_id"))
	call(t, h, "interrupt_execution", map[string]any{"execution_id": a.String("execution_id")})
	if n := len(person.messages()); n != 2 {
		t.Errorf("a password was asked for in a form: %q", person.messages())
	}

	a = quick(t, h, "print([input(f'{i}? ') for i in range(6)])")
	want(t, a, map[string]any{"status": "waiting_for_input", "input_prompt": "5? "})
	if n := len(person.messages()); n != 7 {
		t.Errorf("%d forms in one call", n-2)
	}
	a = call(t, h, "get_execution", map[string]any{"execution_id": a.String("execution_id"), "wait_seconds": 30})
	want(t, a, map[string]any{"status": "succeeded"})
	if !strings.Contains(a.String("stdout"), "'answer 8'") {
		t.Errorf("stdout %q", a.String("stdout"))
	}
}

// A cell of a notebook asks in a form, too. Its output is shown once, and saved whole.
func TestAPersonAnswersACellInAForm(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	person := &typist{answers: accept}
	dir := t.TempDir()
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Initialize: true, Form: person.form, Env: []string{elicit, "RELAY_TOOLSETS=all", "RELAY_NOTEBOOK_DIRS=" + dir}})
	cell := map[string]any{"notebook_path": dir + "/n.ipynb"}
	cell["code"] = "print('before')\nprint(input('name? '), '/', input('place? '))"
	added := call(t, h, "add_code_cell", cell)
	delete(cell, "code")
	cell["cellId"] = added.String("newCellId")

	a := call(t, h, "run_code_cell", cell)
	want(t, a, map[string]any{"success": true, "status": "succeeded", "stdout": "before\nanswer 1 / answer 2\n"})
	if seen := person.messages(); len(seen) != 2 || !strings.Contains(seen[0], "name? ") || !strings.Contains(seen[1], "place? ") {
		t.Errorf("forms %q", seen)
	}
	saved := call(t, h, "get_cells", cell)
	if !strings.Contains(saved.Text, "\nanswer 1 / answer 2\n") {
		t.Errorf("the notebook has %s", saved.Text)
	}
}

// The prompt is answered elsewhere while the form is open, and the code asks something else.
func TestAnAnswerGoesToItsOwnPromptOnly(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	c := relayClient(t, e)
	person := &typist{answers: func(n int, message string) (string, string) {
		if n > 1 {
			return "accept", "the second answer"
		}
		list, err := c.List(t.Context(), 1)
		if err == nil {
			_, err = c.Input(t.Context(), list.Executions[0].ExecutionID, contract.Input{Text: "Grace"})
		}
		if err == nil {
			err = harness.Poll(t.Context(), func() (bool, error) {
				x, err := c.Execution(t.Context(), list.Executions[0].ExecutionID, 0, 0, 0)
				return x.Status == contract.StatusWaitingForInput && len(x.Events) == 2, err
			})
		}
		if err != nil {
			t.Error(err)
		}
		return "accept", "for the first prompt"
	}}
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Initialize: true, Form: person.form, Env: []string{elicit}})
	a := quick(t, h, "print(input('delete what? '), '/', input('really? '))")
	want(t, a, map[string]any{"status": "succeeded", "stdout": "Grace / the second answer\n"})
	wantSaid(t, a, `The user's answer to "delete what? " was not used`)
}
