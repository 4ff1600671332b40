package colabapi_test

import (
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestWhatIsAskedForIsWhatGoogleLists(t *testing.T) {
	g := colabapitest.Start(t)
	b := g.Backend(t)
	for _, test := range []struct {
		spec vm.Spec
		want vm.Spec
		err  error
	}{
		{vm.Spec{}, vm.Spec{}, nil},
		{vm.Spec{Accelerator: "L4"}, vm.Spec{Accelerator: "L4", HighRAM: true}, nil}, // its only shape
		{vm.Spec{Accelerator: "T4", HighRAM: true}, vm.Spec{}, vm.ErrNotEligible},
		{vm.Spec{Accelerator: "A100"}, vm.Spec{}, vm.ErrNotEligible},
	} {
		before := g.Requests("POST /v1beta/runtimes")
		got, err := b.Create(within.Context(t), vm.NewID(), test.spec)
		if !errors.Is(err, test.err) || got.Spec != test.want {
			t.Errorf("%v: %+v, %v", test.spec, got, err)
		}
		if test.err != nil && g.Requests("POST /v1beta/runtimes") != before {
			t.Errorf("%v was asked for", test.spec)
		}
	}
}

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
	m, err := b.Create(within.Context(t), id, vm.Spec{})
	if err != nil || m.ID != id || !slices.Equal(g.Running(), []string{id}) {
		t.Errorf("%+v, %v; runs: %q", m, err, g.Running())
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

func TestASlowCreationIsWaitedFor(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	g := colabapitest.Start(t)
	g.WaitsForCreation = 2
	if m, err := g.Backend(t).Create(within.Context(t), vm.NewID(), vm.Spec{}); err != nil || !m.Ready {
		t.Errorf("%+v, %v", m, err)
	}
}
