package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/vm"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A VM that works is not stopped.
func TestTheKeeperSeesWhetherAVMWorks(t *testing.T) {
	for want, statuses := range map[vm.Work][]contract.Status{
		vm.Working: {contract.StatusSucceeded, contract.StatusQueued, contract.StatusRunning},
		vm.Waiting: {contract.StatusQueued, contract.StatusWaitingForInput},
		vm.Idle:    {contract.StatusSucceeded, contract.StatusFailed},
	} {
		var list contract.ExecutionList
		for _, status := range statuses {
			list.Executions = append(list.Executions, contract.Execution{ExecutionID: "e", Status: status})
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		secret := auth.GenerateSecret()
		executor := linetest.NewExecutor(secret, contract.Instance{ID: "i", Start: "s"}, time.Now)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x, _, err := executor.Open(r)
			if err != nil {
				t.Error(err)
				return
			}
			executor.Answer(w, x, http.StatusOK, text)
		}))
		store := pairing.Open(t.TempDir())
		if _, err := store.Put(pairing.Runtime{Name: "vm", URL: s.URL, Secret: secret}); err != nil {
			t.Fatal(err)
		}
		pool := runtimes.New(runtimes.Config{Getenv: func(string) string { return "" }, Pairings: store})
		if got, err := WorkOf(pool)(t.Context(), "vm"); err != nil || got != want {
			t.Errorf("with %v: %d, %v, want %d", statuses, got, err, want)
		}
		pool.Close()
		s.Close()
	}
}
