package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"colabrelay/relay/render"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// loud makes a run whose every part is too long for an answer.
func loud(run *fakeRun) {
	for i := range 3000 {
		run.print(fmt.Sprintf("line %d ü\n", i))
	}
	run.event(contract.Event{Type: contract.EventStream, Name: contract.Stderr, Text: strings.Repeat("warning ", 1500)})
	for range 60 {
		run.event(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"` + strings.Repeat("shown ", 100) + `"`)}})
	}
	run.event(contract.Event{Type: contract.EventExecuteResult, Data: map[string]json.RawMessage{"text/plain": json.RawMessage(`"` + strings.Repeat("row ", 10_000) + `"`)}})
	run.event(contract.Event{Type: contract.EventError, EName: "E", EValue: strings.Repeat("v", 5_000), Traceback: []string{strings.Repeat("frame\n", 5_000)}})
	run.set(func(e *contract.Execution) {
		e.Error = &contract.ExecutionError{EName: "E", EValue: strings.Repeat("v", 5_000)}
	})
	run.end(contract.StatusFailed)
}

// Hosts show a model the text or the structured content, so both have the limit; pages and
// files have the rest.
func TestARunsAnswerKeepsTheTextLimit(t *testing.T) {
	tier.Long(t)
	for limit, most := range map[int]int{render.LeastTextLimit: 5_000, 0: 15_000, render.MostTextLimit: 55_000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			f := newFake(t)
			rt := f.runtime(t)
			h := startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return rt, nil }, SaveDir: t.TempDir(), Hold: 20 * time.Second, TextLimit: limit})
			loud(f.run("e1"))
			r := h.call("run_code_quick", map[string]any{"code": "x"})
			got, text := r.run(t), r.Content[0].Text
			if limit == 0 {
				limit = render.DefaultTextLimit
			}
			if n := utf8.RuneCountInString(text); n > limit || n < limit/2 {
				t.Errorf("the text has %d characters", n)
			}
			if n := len(r.Structured); n > most {
				t.Errorf("the structured content has %d bytes: %.3000s", n, r.Structured)
			}
			if !strings.HasPrefix(got.Stdout, "line 0 ü\n") || !strings.HasSuffix(got.Stdout, "line 2999 ü\n") || !got.Truncated {
				t.Errorf("not head and tail: %.100q", got.Stdout)
			}
			if limit > render.LeastTextLimit && !strings.Contains(text, got.NextCommand) {
				t.Errorf("the text does not say how to read on (%s): %.500s", got.NextCommand, text)
			}
			for _, file := range got.SavedFiles {
				if _, err := os.Stat(file.Path); err != nil {
					t.Error(err)
				}
			}
			checkPages(t, h, got)
		})
	}
}

// checkPages follows next_command through the pages after an answer, which with its head
// must have each line at least once.
func checkPages(t *testing.T, h *host, run Run) {
	t.Helper()
	var out strings.Builder
	head, _, _ := strings.Cut(run.Stdout, "[…")
	out.WriteString(head)
	for pages := 0; run.NextCommand != ""; pages++ {
		if want := fmt.Sprintf(`get_execution(execution_id="e1", offset=%d)`, run.NextOffset); run.NextCommand != want || pages > 200 {
			t.Fatalf("page %d: %s, want %s", pages, run.NextCommand, want)
		}
		before := run.NextOffset
		run = h.call("get_execution", map[string]any{"execution_id": "e1", "offset": before}).run(t)
		if run.NextOffset <= before {
			t.Fatalf("a page goes from %d to %d", before, run.NextOffset)
		}
		out.WriteString(run.Stdout)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		lines[line] = true
	}
	for i := range 3000 {
		if !lines[fmt.Sprintf("line %d ü\n", i)] {
			t.Fatalf("line %d is missing", i)
		}
	}
}
