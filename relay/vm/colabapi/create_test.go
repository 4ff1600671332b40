package colabapi_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/within"
)

func TestACreationWhoseAnswerIsLostStartsOneVM(t *testing.T) {
	t.Parallel()
	g := colabapitest.Start(t)
	b := g.Backend(t)
	var lost atomic.Int32
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/v1beta/runtimes" || lost.Add(1) > 2 {
			return false
		}
		g.Serve(discardWriter{}, r) // it has its effect
		panic(http.ErrAbortHandler)
	})
	id := vm.NewID()
	err := b.Create(within.Context(t), id, vm.Spec{})
	if err != nil || !slices.Equal(g.Running(), []string{id}) {
		t.Errorf("%v; runs: %q", err, g.Running())
	}
	if n := g.Requests("POST /v1beta/runtimes"); n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// discardWriter is an answer that nobody gets.
type discardWriter struct{}

func (discardWriter) Header() http.Header         { return http.Header{} }
func (discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (discardWriter) WriteHeader(int)             {}
