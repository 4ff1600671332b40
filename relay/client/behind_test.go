package client

import (
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func TestBehindInput(t *testing.T) {
	for name, c := range map[string]struct {
		status contract.Status
		behind *contract.Behind
		want   string // the prompt; "-" for none
	}{
		"input":            {contract.StatusQueued, &contract.Behind{ExecutionID: "e-1", Status: contract.StatusWaitingForInput, Prompt: "name? "}, "name? "},
		"running":          {contract.StatusQueued, &contract.Behind{ExecutionID: "e-1", Status: contract.StatusRunning}, "-"},
		"id of a stranger": {contract.StatusQueued, &contract.Behind{ExecutionID: "e; rm -rf ~", Status: contract.StatusWaitingForInput}, "-"},
		"control codes":    {contract.StatusQueued, &contract.Behind{ExecutionID: "e-1", Status: contract.StatusWaitingForInput, Prompt: "\x1b[2Jname?\n\x07"}, "name?"},
		"past the bound":   {contract.StatusQueued, &contract.Behind{ExecutionID: "e-1", Status: contract.StatusWaitingForInput, Prompt: "x" + strings.Repeat("é", 500)}, "x" + strings.Repeat("é", 499) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, func(seen) (int, any) {
				return http.StatusOK, contract.Execution{ExecutionID: "e", Status: c.status, Behind: c.behind}
			})
			x, err := e.acquainted(t).Execution(WithBehindInput(t.Context()), "e", 0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			got := "-"
			if b := BehindInput(x); b != nil {
				got = b.Prompt
			}
			if strings.TrimSpace(got) != strings.TrimSpace(c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if got := e.all()[0].query; !strings.Contains(got, "behind_input=true") {
				t.Errorf("query %s", got)
			}
		})
	}
}
