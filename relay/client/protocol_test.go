package client

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// unsigned answers every request but health as an executor does to a stranger.
func unsigned(t *testing.T, e *executor, protocol int) {
	t.Helper()
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == contract.PathHealth {
			writeJSON(w, http.StatusOK, contract.Health{Status: "ok", Protocol: protocol, Version: "\x1b[31mevil"})
		} else {
			writeJSON(w, http.StatusUnauthorized, refusalBody(contract.CodeUnauthorized))
		}
		return true
	})
}

func TestAnExecutorOfAnotherProtocolIsNamedAndWhatToUpdate(t *testing.T) {
	for protocol, step := range map[int]string{
		contract.Protocol - 1: "Update the executor",
		contract.Protocol + 1: "Update the relay",
	} {
		e := newExecutor(t, anything)
		c := e.acquainted(t)
		unsigned(t, e, protocol)
		_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
		got := wantKind(t, err, KindWrongProtocol)
		both := fmt.Sprintf("uses protocol %d and this relay protocol %d", protocol, contract.Protocol)
		if !strings.Contains(got.Message, both) || !strings.Contains(got.Message, " is older") || !strings.Contains(got.Hint, step) {
			t.Errorf("got %q, %q", got.Message, got.Hint)
		}
		if strings.Contains(got.Message+got.Hint, "evil") || !MayHaveArrived(err) {
			t.Errorf("got %q, %q; may have arrived: %v", got.Message, got.Hint, MayHaveArrived(err))
		}
	}
}
