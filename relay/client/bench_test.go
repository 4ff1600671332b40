package client

import (
	"bytes"
	"net/http"
	"testing"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// One signed submit over loopback, next to the same bytes over plain net/http.
func BenchmarkSubmit(b *testing.B) {
	e, _ := newRunningExecutor(b)
	c := e.client(b)
	for b.Loop() {
		if _, err := c.Submit(b.Context(), contract.Submit{Code: "1+1"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlainHTTP(b *testing.B) {
	e, _ := newRunningExecutor(b)
	e.setBefore(func(w http.ResponseWriter, _ *http.Request) bool {
		writeJSON(w, http.StatusOK, contract.Execution{Status: contract.StatusSucceeded})
		return true
	})
	transport := NewTransport()
	defer transport.CloseIdleConnections()
	for b.Loop() {
		req, err := http.NewRequest(http.MethodPost, e.URL+contract.PathExecutions, bytes.NewReader([]byte(`{"request_id":"r","code":"1+1"}`)))
		if err != nil {
			b.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := bounded.ReadAll(res.Body, maxAnswerBytes); err != nil {
			b.Fatal(err)
		}
		_ = res.Body.Close()
	}
}
