package client

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
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
		if strings.Contains(got.Message+got.Hint, "evil") || !mayHaveArrived(err) {
			t.Errorf("got %q, %q; may have arrived: %v", got.Message, got.Hint, mayHaveArrived(err))
		}
	}
}

func TestAWrongSecretIsReportedUnderTheSameProtocol(t *testing.T) {
	e := newExecutor(t, anything)
	c := e.acquainted(t)
	unsigned(t, e, contract.Protocol)
	_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
	wantKind(t, err, KindWrongSecret)
}

func TestAHealthThatIsNotAnsweredChangesNothing(t *testing.T) {
	tier.Long(t)
	e := newExecutor(t, anything)
	c := e.acquainted(t)
	released := make(chan struct{})
	defer close(released)
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == contract.PathHealth {
			<-released
			return true
		}
		writeJSON(w, http.StatusUnauthorized, refusalBody(contract.CodeUnauthorized))
		return true
	})
	c.timeouts.answer = 5 * time.Second
	_, err := c.Kernel(t.Context())
	wantKind(t, err, KindWrongSecret)
}

// An executor of a later protocol may name itself in another form, and sign that.
func TestAnExecutorWithANameOfAnotherFormIsOfAnotherProtocol(t *testing.T) {
	c := newExecutor(t, anything).client(t)
	for _, name := range []string{"", "instance-1", "a/b/c"} {
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{contract.HeaderInstance: {name}}}
		_, err := c.open(t.Context(), c.signer.NewExchange(), res, http.NoBody, nil)
		if wantKind(t, err, KindWrongProtocol); !mayHaveArrived(err) || c.InstanceID() != "" {
			t.Errorf("%q: may have arrived: %v; instance %q", name, mayHaveArrived(err), c.InstanceID())
		}
	}
}
